import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { copyFile, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { mock, test } from 'node:test';
import { connect, type TLSSocket } from 'node:tls';
import { selfSigned } from '@isthmus/certificates';
import { clientTlsOf } from '@isthmus/runtime';
import { listen, servePeers, tlsServer, watchCertificate } from '@isthmus/transport';
import { type CertificatePlace, planeEvents } from '@isthmus/tunnel';
import {
  Authority,
  freePort,
  type Identity,
  isUp,
  type Scope,
  scoped,
  startProgram,
  tempDir,
  until as untilTrue,
} from './harness/index.ts';

/** How often files are checked, in milliseconds. */
const LOOK = 2_000;

interface Files extends Identity {
  readonly ca: string;
}

/** Creates an authority, and files with a certificate that it issued. */
async function certified(scope: Scope) {
  const dir = await tempDir(scope);
  const authority = await Authority.create(dir, 'agents');
  const own = await authority.server(BOTH);
  const files: Files = { cert: join(dir, 'tls.crt'), key: join(dir, 'tls.key'), ca: join(dir, 'ca.crt') };
  const put = async (what: Partial<Files>) => {
    for (const [file, from] of Object.entries(what)) await copyFile(from, files[file as keyof Files]);
  };
  await put({ ...own, ca: authority.cert });
  return { dir, authority, own, files, put };
}

type Certified = Awaited<ReturnType<typeof certified>>;

/** The same, with the events about these files, and a clock that moves only on to the next check. */
async function place(scope: Scope) {
  const here = await certified(scope);
  mock.timers.enable({ apis: ['setInterval'] });
  scope.defer(() => mock.timers.reset());
  const events = planeEvents();
  const told: string[] = [];
  events.on('certificate', (where, validUntil) => told.push(`${where} until ${validUntil}`));
  events.on('certificate:failure', (where, _files, error) =>
    told.push(`${where} ${error?.message.replaceAll(`${here.dir}/`, '') ?? 'well'}`),
  );
  return { ...here, events, told, look: () => mock.timers.tick(LOOK) };
}

/** For these servers and also for their clients. */
const BOTH = { uses: ['client', 'server'] } as const;

type Place = Awaited<ReturnType<typeof place>>;

const certificateIn = ({ cert }: Identity) => new X509Certificate(readFileSync(cert));
const until = (where: CertificatePlace, identity: Identity) =>
  `${where} until ${Date.parse(certificateIn(identity).validTo)}`;

/** Starts a server that uses these files and sends hello. */
async function serve(scope: Scope, { files, events }: Place) {
  const accept = (socket: TLSSocket) => {
    scope.defer(() => socket.destroy());
    socket.on('error', () => {}).write('hello');
  };
  const server = tlsServer({ where: 'agents', files, events }, {}, { accept, refused() {} });
  server.listen(0, '127.0.0.1');
  scope.defer(() => server.close());
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

/** Connects as a client that trusts the authority `ca`, with this certificate. */
function greeted(port: number, ca: string, { cert, key }: Identity, ALPNProtocols?: string[]): TLSSocket {
  const shown = { ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) };
  return connect({ port, host: '127.0.0.1', ...shown, ...(ALPNProtocols && { ALPNProtocols }) });
}

/** Returns the serial number of the certificate that a new connection gets. */
async function shown(port: number, { authority, own }: Certified, alpn?: string[]): Promise<string> {
  const socket = greeted(port, authority.cert, own, alpn);
  await once(socket, 'secureConnect');
  const { serialNumber } = socket.getPeerCertificate();
  socket.destroy();
  return serialNumber;
}

test(
  'a port keeps its certificate until its files are a pair again, and reports that once',
  scoped(async (scope) => {
    const here = await place(scope);
    const { authority, own, files, put, told, look } = here;
    const { port } = await serve(scope, here);
    const next = await authority.server({ ...BOTH, validMs: 3 * 86_400_000 });
    const [before, after] = [certificateIn(own).serialNumber, certificateIn(next).serialNumber];
    await put({ cert: next.cert });
    look();
    look();
    assert.equal(await shown(port, here), before);
    await put({ key: next.key });
    assert.equal(await shown(port, here), before);
    look();
    assert.equal(await shown(port, here), after);
    await rm(files.key);
    look();
    await writeFile(files.cert, '');
    await put({ key: next.key });
    look();
    assert.equal(await shown(port, here), after);
    await put({ cert: next.cert });
    look();
    await rm(files.key);
    look();
    assert.deepEqual(told, [
      until('agents', own),
      'agents tls.key: the key does not match the certificate',
      until('agents', next),
      'agents well',
      "agents ENOENT: no such file or directory, open 'tls.key'",
      'agents tls.crt: there is no certificate (PEM) in it',
      'agents well',
      "agents ENOENT: no such file or directory, open 'tls.key'",
    ]);
  }),
);

test(
  'a port uses a mounted Secret that was renewed as a whole, also if it was closed and listens again',
  scoped(async (scope) => {
    const here = await place(scope);
    const { dir, authority, own, files, look } = here;
    /** Does what kubelets do: files are links through `..data`, which becomes a link to another directory. */
    const mount = async (version: string, { cert, key }: Identity) => {
      await mkdir(join(dir, version));
      await copyFile(cert, join(dir, version, 'tls.crt'));
      await copyFile(key, join(dir, version, 'tls.key'));
      await symlink(version, join(dir, '..data_tmp'));
      await rename(join(dir, '..data_tmp'), join(dir, '..data'));
    };
    await mount('..1', own);
    for (const [path, file] of [
      [files.cert, 'tls.crt'],
      [files.key, 'tls.key'],
    ] as const) {
      await rm(path);
      await symlink(join('..data', file), path);
    }
    const { server, port } = await serve(scope, here);
    for (const version of ['..2', '..3']) {
      const next = await authority.server(BOTH);
      await mount(version, next);
      look();
      assert.equal(await shown(port, here), certificateIn(next).serialNumber);
      server.close();
      await once(server, 'close');
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
    }
  }),
);

test(
  'a port uses files that were renamed into place, and an authority with them',
  scoped(async (scope) => {
    const here = await place(scope);
    const { dir, authority, own, files, look } = here;
    const { port } = await serve(scope, here);
    const next = await authority.server(BOTH);
    const both = join(dir, 'both.pem');
    const other = await Authority.create(dir, 'others');
    await writeFile(both, [other, authority].map(({ cert }) => readFileSync(cert, 'utf8')).join('\n'));
    for (const [file, from] of Object.entries({ ...next, ca: both })) await rename(from, files[file as keyof Files]);
    assert.equal(await shown(port, here), certificateIn(own).serialNumber);
    look();
    assert.equal(await shown(port, here), certificateIn(files).serialNumber);
  }),
);

test(
  'a port trusts a renewed authority from then on, ignores an empty file, and keeps open connections',
  scoped(async (scope) => {
    const here = await place(scope);
    const { dir, authority, own, files, put, told, look } = here;
    const { port } = await serve(scope, here);
    const other = await Authority.create(dir, 'others');
    const stranger = await other.client('stranger');
    const open = greeted(port, authority.cert, own);
    assert.equal(String(await once(open, 'data')), 'hello');
    await writeFile(files.ca, '');
    look();
    await once(greeted(port, authority.cert, own), 'data');
    const refused = greeted(port, authority.cert, stranger);
    let said = '';
    refused
      .on('error', () => {})
      .on('data', (chunk) => {
        said += chunk;
      });
    await new Promise((resolve) => refused.once('close', resolve));
    assert.match(said, /^(HTTP\/1.1 403 |$)/, 'a stranger was let in');
    await put({ ca: other.cert });
    look();
    await once(greeted(port, authority.cert, stranger), 'data');
    assert.ok(open.writable);
    assert.deepEqual(told.slice(1), [
      'agents ca.crt: there is no certificate (PEM) in it',
      until('agents', own),
      'agents well',
    ]);
  }),
);

test(
  'a port and a client keep their authorities while a certificate of the new bundle is malformed, and take one with a damaged block',
  scoped(async (scope) => {
    const here = await place(scope);
    const { dir, authority, own, files, told, look } = here;
    const { port } = await serve(scope, here);
    const other = await Authority.create(dir, 'others');
    const stranger = await other.client('stranger');
    const [known, more] = [authority, other].map(({ cert }) => readFileSync(cert, 'utf8')) as [string, string];
    const answerTo = async (identity: Identity) => {
      const socket = greeted(port, authority.cert, identity).on('error', () => {});
      const [said] = await Promise.race([once(socket, 'data'), once(socket, 'close')]);
      socket.destroy();
      return String(said);
    };
    const trust = clientTlsOf(files);
    const renew = async (ca: string) => {
      await writeFile(files.ca, ca);
      look();
    };
    await renew(`${more}-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n${known}`);
    assert.equal(clientTlsOf(files), trust);
    assert.equal(await answerTo(own), 'hello');
    assert.notEqual(await answerTo(stranger), 'hello');
    await renew(`# ${more}${known}`);
    assert.notEqual(await answerTo(stranger), 'hello', 'an authority that was commented out was trusted');
    await renew(`\ufeff${more}${more.slice(0, 100)}\n${known}`);
    for (const identity of [own, stranger]) assert.equal(await answerTo(identity), 'hello');
    assert.equal(clientTlsOf(files).roots.all.length, 2);
    await renew(known);
    assert.notEqual(await answerTo(stranger), 'hello');
    assert.deepEqual(
      told.filter((each) => !each.includes('until')),
      [
        'agents ca.crt: certificate 2 of 3 is malformed: malformed DER',
        'agents well',
        'agents ca.crt: certificate 2 of 3: its PEM block is damaged, or has no end: the others are used, this one is not',
        'agents well',
      ],
    );
  }),
);

test(
  'what is checked of a certificate is what OpenSSL gets: one behind a byte order mark is shown, a weak one is refused by its size',
  scoped(async (scope) => {
    const here = await place(scope);
    const { authority, files, put, told, look } = here;
    const { port } = await serve(scope, here);
    const next = await authority.server(BOTH);
    for (const [file, from] of [
      [files.cert, next.cert],
      [files.key, next.key],
    ] as const)
      await writeFile(file, `\ufeff${readFileSync(from, 'utf8').replaceAll('\n', '\r\n')}`);
    look();
    assert.equal(await shown(port, here), certificateIn(next).serialNumber);
    const weak = await selfSigned('weak', undefined, 1024);
    await writeFile(files.cert, weak.cert);
    await writeFile(files.key, weak.key);
    look();
    assert.equal(await shown(port, here), certificateIn(next).serialNumber);
    await put(next);
    look();
    assert.deepEqual(told.slice(-2), [
      'agents tls.crt: certificate 1 of 1 (CN=weak): its RSA key has 1024 bits: 2048 to 8192 are allowed',
      'agents well',
    ]);
  }),
);

test(
  "agents' and peers' ports show renewed certificates",
  scoped(async (scope) => {
    const here = await place(scope);
    const { authority, own, files, put, events, told, look } = here;
    const host = '127.0.0.1';
    const dial = () => Promise.reject(new Error('nobody dials here'));
    const agents = await listen({ address: { host, port: 0 }, tls: files, name: 'agents', events });
    scope.defer(() => agents.close());
    const peers = await servePeers({ host, port: 0, tls: files, dial, attach: dial, events });
    scope.defer(() => peers.close());
    const next = await authority.server(BOTH);
    await put(next);
    look();
    for (const { address } of [agents, peers]) {
      const port = Number(address.split(':').at(-1));
      assert.equal(await shown(port, here, ['h2', 'http/1.1']), certificateIn(next).serialNumber);
    }
    assert.deepEqual(told, [
      ...[until('agents', own), until('peers', own)],
      ...[until('agents', next), until('peers', next)],
    ]);
  }),
);

test(
  'the admin port of a running program shows a renewed certificate',
  scoped(async (scope) => {
    const here = await certified(scope);
    const { authority, files, put } = here;
    const [port, health] = [await freePort(), await freePort()];
    const program = startProgram(scope, 'proxy-agent', {
      flags: {
        'proxy-server-host': '127.0.0.1',
        'proxy-server-port': await freePort(),
        'admin-server-port': port,
        'health-server-port': health,
        'admin-server-cert': files.cert,
        'admin-server-key': files.key,
        'admin-ca-cert': files.ca,
      },
      healthPort: health,
    });
    await isUp(program);
    const next = await authority.server(BOTH);
    await put(next);
    const renewed = async () => (await shown(port, here)) === certificateIn(next).serialNumber;
    await untilTrue(renewed, { every: 250, what: 'the next certificate' });
  }),
);

test(
  'a client certificate is reported, even if its files appear later; without one nothing is reported',
  scoped(async (scope) => {
    const { authority, files, put, events, told, look } = await place(scope);
    await rm(files.key);
    scope.defer(watchCertificate({ where: 'uplink', files, events }));
    scope.defer(watchCertificate({ where: 'redis', files: { cert: '', key: '', ca: files.ca }, events }));
    const next = await authority.client('agent');
    await put(next);
    look();
    const missing = "uplink ENOENT: no such file or directory, open 'tls.key'";
    assert.deepEqual(told, [missing, until('uplink', next), 'uplink well']);
  }),
);
