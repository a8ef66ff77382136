import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http2, { type ClientHttp2Stream, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { redisMissing } from '@isthmus/directory/testing';
import { requestHoldLink, TRANSPORT } from '@isthmus/transport';
import { freePort, open, Scope, unlessSlow, until, within } from '../harness/index.ts';
import { addCluster, callerOf, dialled, tenantsPlane } from '../tenants/rig.ts';
import type { TenantTrust } from '../tenants/tenant-trust.ts';
import { openLink } from './gateway-link.ts';
import { head, upgrade } from './links.ts';

const LINKS = 40;
const DIALS = 10;
const KIB = 1024;

/** A message as large as one line may be. */
const LARGEST = TRANSPORT.controlLineBytes - KIB;

const list = (bytes: number, item: string) => `[${Array(Math.floor(bytes / (item.length + 1))).fill(item)}]`;
const hub = (index: number) => ({ hubId: `h${index}`, address: `${'a'.repeat(200)}:1`, zone: 'z', draining: false });

/** Each message at what it costs most: a line, or the n-th of all links. */
const MESSAGES: Readonly<Record<string, string | ((n: number) => string)>> = {
  drain: '{"type":"drain"}',
  'cut, the oldest last': (n) =>
    JSON.stringify({
      ...{ type: 'cut', dial: '0123456789abcdef', by: 'path', reason: 'r'.repeat(TRANSPORT.reasonCharacters) },
      ...{ destination: `${'d'.repeat(240)}:1`, agent: 'a'.repeat(250), gateway: 'g', hold: 'h', trace: '' },
      ...{ ms: 1000, agoMs: 3_400_000 + n, up: 1, down: 2 },
    }),
  'credential, never good': (n) =>
    JSON.stringify({ type: 'credential', token: `${'a'.repeat(TRANSPORT.tokenCharacters - 20)}.${n}.x` }),
  'of no known type': (n) =>
    JSON.stringify({ type: 'nothing', address: '127.0.0.1:1', serverId: `other-${n}`, plane: 'p' }),
  'hung-up': (n) => JSON.stringify({ type: 'hung-up', gateway: n.toString(16).padStart(16, '0'), reset: true }),
  membership: JSON.stringify({
    type: 'membership',
    current: true,
    hubs: Array.from({ length: 100 }, (_, i) => hub(i)),
  }),
  policy: JSON.stringify({ type: 'policy', deny: Array(TRANSPORT.ruleEntries).fill({ ports: [1, 2, 3, 4] }) }),
  renewed: '{"type":"renewed"}',
  'of no known type, with many keys': `{"type":"x",${Array.from({ length: LARGEST / 12 }, (_, i) => `"k${i}":1`)}}`,
  'of no known type, and deep': `{"type":"x","of":${'['.repeat(LARGEST / 2)}${']'.repeat(LARGEST / 2)}}`,
  'of no known type, with many objects': `{"type":"x","of":${list(LARGEST, '{}')}}`,
  malformed: (n) => `{"type":"cut","dial":"${n}"}`,
};

/** A control stream on which the test writes any line. */
type ControlStream = ClientHttp2Stream | ServerHttp2Stream;

/** Writes as many lines as a link takes at once, and then as many a second as it takes for good, until the scope ends. */
function flood(
  scope: Scope,
  streams: readonly ControlStream[],
  message: string | ((n: number) => string),
): { said: () => number } {
  let said = 0;
  const line = typeof message === 'string' ? () => message : message;
  const cost = 1 + line(0).length / TRANSPORT.controlBytesAMessage;
  const tell = () => {
    for (const stream of streams) {
      // What the other side does not read waits here.
      if (!stream.destroyed && stream.writableLength < 8 * LARGEST) stream.write(`${line(said++)}\n`);
    }
  };
  for (let spent = 0; spent + cost < TRANSPORT.controlMessagesAtOnce * 0.7; spent += cost) tell();
  const telling = setInterval(tell, (1000 * cost) / (TRANSPORT.controlMessagesPerSecond * 0.7));
  scope.defer(() => clearInterval(telling));
  return { said: () => said };
}

function controlOf(scope: Scope, socket: Socket): ClientHttp2Stream {
  const session = http2.connect('http://link', { createConnection: () => socket }).on('error', () => {});
  scope.defer(() => session.destroy());
  return session.request({ ':method': 'POST', ':path': '/control' }, { endStream: false }).on('error', () => {});
}

/** An agent's end of a link: it is the HTTP/2 server. */
async function agentLink(scope: Scope, port: number, trust: TenantTrust, id: string): Promise<ServerHttp2Stream> {
  const { cert, key } = await trust.agent(id);
  const socket = connectTls({
    ...{ host: '127.0.0.1', port, servername: trust.serverName, ca: readFileSync(trust.cluster.cert) },
    ...{ cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ['http/1.1'] },
  });
  scope.defer(() => void socket.destroy());
  await within(
    once(
      socket.on('error', () => {}),
      'secureConnect',
    ),
    { what: 'a TLS handshake' },
  );
  socket.write(upgrade({ 'isthmus-agent': id }));
  await head(socket, / 101 /);
  const session = http2.performServerHandshake(socket).on('error', () => {});
  scope.defer(() => session.destroy());
  const [stream] = (await within(once(session, 'stream'), { what: 'a control stream' })) as [ServerHttp2Stream];
  stream
    .on('error', () => {})
    .resume()
    .respond({ ':status': 200 });
  return stream;
}

test('each control message, at what it costs most, on 40 links of one tenant fails no dial of another', {
  skip: unlessSlow() || redisMissing(),
  timeout: 600_000,
}, async (t) => {
  await using scope = new Scope();
  const peerPort = await freePort();
  const plane = await tenantsPlane(scope, {
    hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
  });
  const quiet = await addCluster(scope, plane, 'quiet');
  const caller = await callerOf(plane, quiet.trust);
  const { peers } = plane.trust;
  const gateway = await peers.peer(['gateway']);
  const inForce = async (count: number) => {
    for (const { program } of [plane.gateway, plane.hub])
      await until(async () => (await program.value('isthmus_tenants')) === count, `${count} tenants`);
  };
  const directions: Readonly<Record<string, (scope: Scope, loud: TenantTrust, n: number) => Promise<ControlStream>>> = {
    'hold to gateway': async (scope, loud) => {
      const socket = await open(scope, await callerOf(plane, loud));
      await requestHoldLink(socket, 30_000);
      return controlOf(scope, socket);
    },
    'agent to hub': (scope, loud, n) => agentLink(scope, plane.hub.agentPort, loud, `edge-${n}`),
    'gateway to hub': async (scope) => {
      const link = await openLink(scope, peerPort, peers.cert, gateway);
      return link.request({ ':method': 'POST', ':path': '/control' }, { endStream: false }).on('error', () => {});
    },
  };
  let tenants = 1;
  for (const [direction, link] of Object.entries(directions))
    for (const [name, message] of Object.entries(MESSAGES))
      await t.test(`${direction}: ${name}`, async () => {
        await using scope = new Scope();
        // What it may say at once is its own.
        const loud = await plane.directory.add(`loud-${tenants}`);
        await inForce(++tenants);
        const streams: ControlStream[] = [];
        for (let n = 0; n < LINKS; n++) streams.push(await link(scope, loud, n));
        const { said } = flood(scope, streams, message);
        const answers: string[] = [];
        for (let n = 0; n < DIALS; n++) {
          const before = said();
          const { status, body, said: greeting } = await dialled(scope, caller, quiet.destination.authority);
          answers.push(status === 200 ? greeting : `${status} ${body} after ${said()} messages`);
          if (n === 0) await until(() => said() > before, 'more messages');
        }
        assert.deepEqual(answers, Array(DIALS).fill('quiet'));
        assert.equal(streams.filter(({ destroyed }) => !destroyed).length, LINKS, 'links that were only slowed');
      });
});
