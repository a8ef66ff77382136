import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { redisMissing } from '@isthmus/directory/testing';
import { freePort, INSPECTED, livingBytes, type Scope, scoped, unlessSlow, until } from '../harness/index.ts';
import { block, FLAG, FrameSocket, frame, PREFACE, settings, TYPE } from '../hostile/frames.ts';
import { addCluster, callerOf, dialled, tenantsPlane } from './rig.ts';

const KIB = 1024;

function isOpen(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return once(socket, 'connect')
    .then(
      () => true,
      () => false,
    )
    .finally(() => socket.destroy());
}

/** Connections to one port that say nothing of who they are, and how many of them are open. */
function flood(scope: Scope, port: number, count: number, begin: (index: number) => Socket) {
  let open = 0;
  for (let i = 0; i < count; i++) {
    const socket = begin(i).on('error', () => {});
    open++;
    socket.once('close', () => open--);
    scope.defer(() => void socket.destroy());
  }
  return { port, open: () => open };
}

test(
  "strangers at many tenants' ports have one budget, and each port keeps a few places",
  { skip: redisMissing() },
  scoped(async (scope) => {
    const waiting = { 'max-waiting-agents': 30, 'max-waiting-agents-per-source': 30 };
    const plane = await tenantsPlane(scope, { hubFlags: waiting });
    const tenants = [];
    for (const name of ['t1', 't2', 't3', 't4', 't5', 't6']) {
      const port = await freePort();
      const trust = await plane.directory.trust(name);
      await plane.directory.write({ ...trust.file, agents: [{ certificates: { ca: trust.cluster.cert }, port }] });
      tenants.push({ trust, port });
    }
    for (const { port } of tenants) await until(() => isOpen(port), { what: `port ${port}` });
    const most = 30 + 7 * 4;
    // Fewer at each port than a port may have, so that the budget of all ports refuses, whichever comes first. From 25 addresses, because
    // one has 30 places at all ports. Each sends a byte, so that none goes for its silence.
    const floods = [plane.hub.agentPort, ...tenants.slice(0, 5).map(({ port }) => port)].map((port) =>
      flood(scope, port, 25, (index) => {
        const from = { host: '127.0.0.1', localAddress: `127.0.1.${1 + index}` };
        const socket = connect({ port, ...from }, () => socket.write('\x16'));
        return socket.resume();
      }),
    );
    const open = () => floods.reduce((sum, each) => sum + each.open(), 0);
    await until(() => open() <= most, { what: () => `${most} of 150 at most to be open: ${open()} are` });
    const [quiet] = tenants.slice(5).map(({ port }) => port);
    const honest = connectTls({ port: quiet as number, host: '127.0.0.1', rejectUnauthorized: false });
    scope.defer(() => void honest.destroy());
    await once(honest, 'secureConnect');
    const line = await plane.hub.program.waitForLog(
      ({ where, text }) => where === 'agents waiting' && /ports of this program/.test(String(text)),
      {
        what: 'a refusal that names the budget of all ports',
      },
    );
    assert.match(String(line.text), /--max-waiting-agents$/);
  }),
);

test(
  'a caller that finishes its handshake and proves no tenant is not let stay',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    await plane.directory.add('acme');
    const { port } = plane.gateway.mtls;
    const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'] });
    scope.defer(() => void socket.destroy());
    await once(socket, 'secureConnect');
    // HTTP/2's preface and empty SETTINGS: it waits, as a gRPC client does between calls.
    socket.on('error', () => {}).resume();
    socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    socket.write(Buffer.from('000000040000000000', 'hex'));
    const closed = once(socket, 'close');
    await closed;
    await plane.gateway.program.waitForLog(
      ({ where, text }) => where === 'callers waiting' && /not admitted/.test(String(text)),
      {
        what: 'why it was closed',
      },
    );
  }),
);

const CALL = block([
  [':method', 'POST'],
  [':scheme', 'https'],
  [':path', '/ProxyService/Proxy'],
  [':authority', 'x'],
  ['te', 'trailers'],
  ['content-type', 'application/grpc'],
]);

/** All but the last bytes of a message that a server keeps until it is whole. */
const UNFINISHED = Buffer.concat([Buffer.from([0, 0, 0, 0x40, 0]), Buffer.alloc(16 * KIB - 1)]);

/** A connection to the callers' port on which the test writes each frame. */
async function framed(scope: Scope, options: ConnectionOptions): Promise<FrameSocket> {
  const socket = connectTls({ host: '127.0.0.1', rejectUnauthorized: false, ALPNProtocols: ['h2'], ...options });
  scope.defer(() => void socket.destroy());
  await once(socket, 'secureConnect');
  const frames = new FrameSocket(socket);
  await frames.send(PREFACE, settings());
  await frames.frame(TYPE.SETTINGS);
  return frames;
}

/** Opens calls that never dial, each with most of a message. */
async function openCalls(frames: FrameSocket, count: number, length = 16 * KIB): Promise<void> {
  for (let id = 1; id < 2 * count; id += 2) {
    await frames.send(
      frame(TYPE.HEADERS, FLAG.END_HEADERS, id, CALL),
      frame(TYPE.DATA, 0, id, UNFINISHED.subarray(0, length)),
    );
  }
}

/** How the streams of a connection ended that did: by a reset, or with a gRPC status and nothing else. */
function refusals({ frames }: FrameSocket): number {
  const ended = ({ type, flags, stream }: (typeof frames)[number]) =>
    stream > 0 && (type === TYPE.RST_STREAM || (type === TYPE.HEADERS && (flags & FLAG.END_STREAM) !== 0));
  return new Set(frames.filter(ended).map(({ stream }) => stream)).size;
}

test(
  'a caller has one stream until it has proven a tenant, and its streams without a dial then count as pending dials',
  { skip: redisMissing() },
  scoped(async (scope) => {
    const plane = await tenantsPlane(scope);
    const acme = await addCluster(scope, plane, 'acme', { limits: { pendingDials: 20 } });
    const beta = await addCluster(scope, plane, 'beta');
    const { port } = plane.gateway.mtls;
    const stranger = await framed(scope, { port });
    for (let id = 1; id < 200; id += 2) await stranger.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, CALL));
    await until(() => refusals(stranger) === 99, { what: () => `99 refusals: ${refusals(stranger)}` });

    const { cert, key } = await acme.trust.caller();
    const own = { cert: readFileSync(cert), key: readFileSync(key), servername: acme.trust.serverName };
    const caller = await framed(scope, { port, ...own });
    await openCalls(caller, 100);
    await until(() => refusals(caller) === 80, { what: () => `80 refusals: ${refusals(caller)}` });
    const via = await callerOf(plane, acme.trust);
    const said = async () => (await dialled(scope, via, acme.destination.authority)).status;
    assert.equal(await said(), 503);
    const others = await callerOf(plane, beta.trust);
    assert.equal((await dialled(scope, others, beta.destination.authority)).said, 'beta');
    caller.socket.destroy();
    await until(async () => (await said()) === 200, { what: 'room again once the streams have gone' });
  }),
);

test(
  'connections of strangers at the callers’ port hold little, whatever they send',
  { skip: redisMissing() || unlessSlow() },
  scoped(async (scope, context) => {
    const plane = await tenantsPlane(scope, { gatewayEnv: INSPECTED });
    await plane.directory.add('acme');
    const { port } = plane.gateway.mtls;
    const { program } = plane.gateway;
    await openCalls(await framed(scope, { port }), 1, 4 * KIB);
    const before = await livingBytes(program);
    const half = Buffer.concat([
      frame(TYPE.HEADERS, 0, 3, Buffer.alloc(15 * KIB, CALL)),
      frame(TYPE.CONTINUATION, 0, 3, Buffer.alloc(15 * KIB), 16 * KIB),
    ]);
    const all = async (count: number) => {
      for (let i = 0; i < count; i++) {
        const frames = await framed(scope, { port });
        await openCalls(frames, 1, 4 * KIB);
        // The beginning of another head, and of the frame behind it.
        await frames.send(half);
      }
    };
    await Promise.all(Array.from({ length: 8 }, () => all(125)));
    // Measured: 94 to 102 KiB; with what V8 has not collected yet, 125 to 138. Where copies of what came were kept, on purpose: 143.
    const grown = (await livingBytes(program)) - before;
    const said = `${Math.round(grown / KIB)} KiB of 1,000 connections`;
    context.diagnostic(said);
    assert.ok(grown <= 1000 * 128 * KIB, said);
  }),
);
