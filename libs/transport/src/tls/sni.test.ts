import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { createServer, get } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import tls, { type ConnectionOptions, type SecureContext, type TLSSocket } from 'node:tls';
import { CertificateAuthority, type IdentityTexts, LOOPBACK } from '@isthmus/certificates';
import { clientTls, connectTls, httpsAgent, secured, sniOf } from '@isthmus/runtime';
import { costsItsLength } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { listen } from '../listen.ts';
import { serverNameOf, shownCertificate } from './admit.ts';
import { tlsChoice } from './renewal.ts';

const DAY = 86_400_000;

const authority = await CertificateAuthority.create('servers', DAY);
const server = (name: string) =>
  authority.issue({ commonName: name, validMs: DAY, hosts: [...LOOPBACK, { type: 'dns', value: name }] });
const [own, a, b] = await Promise.all([server('own'), server('a.example'), server('b.example')]);

/** A listener that tells each peer what it showed, with the certificates of two tenants besides its own. */
async function listening(context: TestContext, policy: { readonly minVersion?: 'TLSv1.2' | 'TLSv1.3' } = {}) {
  const dir = await mkdtemp(join(tmpdir(), 'sni-'));
  context.after(() => rm(dir, { recursive: true }));
  const files = { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key'), ca: join(dir, 'ca.crt') };
  await Promise.all([
    writeFile(files.cert, own.cert),
    writeFile(files.key, own.key),
    writeFile(files.ca, (await CertificateAuthority.create('program', DAY)).cert),
  ]);
  const choices = new Map<string, SecureContext>();
  const choose = (name: string, identity: IdentityTexts) => choices.set(name, tlsChoice(identity, policy));
  choose('a.example', a);
  choose('b.example', b);
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (_where, _remote, error) => void refused.push(error.message));
  const broken: string[] = [];
  const listener = await listen({
    address: { host: '127.0.0.1', port: 0 },
    tls: { ...files, ...policy },
    asksOnly: true,
    chooseTls: (name) => {
      if (name === 'broken.example') throw new Error('no such certificate');
      return choices.get(name);
    },
    others({ stream: socket }) {
      socket.on('error', ({ message }) => void broken.push(message));
      // Later, as its request may come.
      setImmediate(() => {
        const shown = shownCertificate(socket);
        const names = [shown?.leaf, ...(shown?.sent ?? [])].map((each) => each?.subjectText);
        const { alpnProtocol: protocol } = socket as TLSSocket;
        const reused = (socket as TLSSocket).isSessionReused();
        socket.end(JSON.stringify({ sni: serverNameOf(socket), names, protocol, reused }));
      });
    },
    // Served, so that its name is offered.
    http2: ({ stream }) => void stream.destroy(),
    events,
    name: 'agents',
  });
  context.after(() => listener.close());
  const port = Number(listener.address.split(':').at(-1));
  const ask = async (servername: string, options: ConnectionOptions = {}) => {
    const name = servername === '' ? {} : { servername };
    const socket = tls.connect({ ...{ host: '127.0.0.1', port, ca: authority.cert }, ...name, ...options });
    const sessions: Buffer[] = [];
    socket.on('session', (session) => void sessions.push(session));
    socket.write('GET');
    const said = JSON.parse(await text(socket)) as Said;
    return { ...said, sessions };
  };
  return { ask, choose, refused, broken };
}

/** What the listener saw of a peer. */
interface Said {
  readonly sni?: string;
  readonly names: readonly string[];
  readonly protocol: string | false;
  readonly reused: boolean;
}

const names = (servername: string) => ({
  checkServerIdentity: (_host: string, certificate: tls.PeerCertificate) =>
    certificate.subject.CN === servername ? undefined : new Error(`shown ${certificate.subject.CN}`),
});

test("a peer is shown the certificate of the tenant that it names, and otherwise the program's", async (context) => {
  const { ask } = await listening(context);
  assert.equal((await ask('a.example', names('a.example'))).sni, 'a.example');
  assert.equal((await ask('b.example', names('b.example'))).sni, 'b.example');
  assert.equal((await ask('c.example', names('own'))).sni, 'c.example');
  assert.equal((await ask('', names('own'))).sni, undefined);
});

test("no name has its last dot: neither what is sent to a server, nor what a peer's name selects", async (context) => {
  const { ask } = await listening(context);
  assert.equal((await ask('a.example.', names('a.example'))).sni, 'a.example');
  const sent: unknown[] = [];
  const pair = { cert: a.cert, key: a.key };
  const server = createServer(pair, (_request, response) => response.end()).on('secureConnection', (socket) =>
    sent.push((socket as TLSSocket).servername),
  );
  context.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const trust = clientTls({ ca: authority.cert });
  const taken = once(server, 'secureConnection');
  const socket = connectTls({ host: '127.0.0.1', port, servername: 'a.example.' }, trust, ['a.example.']);
  await Promise.all([secured(socket), taken]);
  socket.destroy();
  const agent = httpsAgent({ ca: authority.cert }, ['a.example.']);
  const [answer] = (await once(get({ agent, host: '127.0.0.1', port }), 'response')) as [IncomingMessage];
  answer.resume();
  await once(answer, 'end');
  agent.destroy();
  assert.deepEqual(sent, ['a.example', 'a.example']);
  costsItsLength(() => sniOf(`a${'.'.repeat(300_000)}b`));
  assert.deepEqual(['a.example..', 'localhost', '::1', '127.0.0.1', ''].map(sniOf), [
    { servername: 'a.example' },
    { servername: 'localhost' },
    {},
    {},
    {},
  ]);
});

test('a certificate that was replaced is shown from then on', async (context) => {
  const { ask, choose } = await listening(context);
  choose('a.example', b);
  await ask('a.example', names('b.example'));
});

test('a peer may show a certificate of any authority, with what it sends behind it, or none', async (context) => {
  const { ask, refused } = await listening(context);
  const root = await CertificateAuthority.create('root', DAY);
  const middle = await root.subordinate('middle', DAY);
  const { cert, key } = await middle.issue({ commonName: 'edge', validMs: DAY });
  const shown = await ask('a.example', { cert: `${cert}\n${middle.cert}`, key });
  assert.deepEqual(shown.names, ['CN=edge', 'CN=middle']);
  assert.deepEqual((await ask('a.example')).names, [null]);
  assert.deepEqual(refused, []);
});

test('a certificate whose signature is forged does not break the connection, so its peer can be told', async (context) => {
  const { ask, broken } = await listening(context);
  const root = await CertificateAuthority.create('root', DAY);
  const forged = await (await root.impostor()).issue({ commonName: 'edge', validMs: DAY });
  const ca = [authority.cert, root.cert];
  const shown = await ask('a.example', { ...forged, cert: `${forged.cert}\n${root.cert}`, ca });
  assert.deepEqual(shown.names, ['CN=edge', 'CN=root']);
  assert.deepEqual(broken, []);
});

test('a tenant whose certificate cannot be chosen takes no other connection with it', async (context) => {
  const { ask, refused } = await listening(context);
  await assert.rejects(ask('broken.example'));
  assert.equal((await ask('a.example')).sni, 'a.example');
  assert.match(refused.join(), /no such certificate/);
});

for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
  test(`a session of one tenant is not resumed at another, nor at its own, with ${version}`, async (context) => {
    const { ask } = await listening(context);
    const limit = { minVersion: version, maxVersion: version } as const;
    const first = await ask('a.example', limit);
    for (const session of first.sessions) {
      for (const name of ['a.example', 'b.example', 'own.example'])
        assert.equal((await ask(name, { ...limit, session, checkServerIdentity: () => undefined })).reused, false);
    }
  });
}

test('a peer gets the first protocol of ours that it offers, and none if it offers none', async (context) => {
  const { ask } = await listening(context);
  const protocolFor = async (...offered: string[]) => (await ask('a.example', { ALPNProtocols: offered })).protocol;
  assert.equal(await protocolFor('h2', 'http/1.1'), 'http/1.1');
  assert.equal(await protocolFor('h2'), 'h2');
  assert.equal((await ask('a.example')).protocol, false);
  await assert.rejects(protocolFor('smtp'));
});
