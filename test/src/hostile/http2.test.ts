import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import test, { type TestContext } from 'node:test';
import { connect as connectTls } from 'node:tls';
import { HUB_SERVER_NAME } from '@isthmus/tunnel';
import { echo, freePort, type Identity, type Program, Scope, split, until, within } from '../harness/index.ts';
import { block, FLAG, FrameSocket, frame, PREFACE, settings, TYPE, uint32 } from './frames.ts';
import { attack, type Bystander, bystander, raw } from './rig.ts';

type Open = (scope: Scope) => Promise<FrameSocket>;

const GRPC = (path: string, more: readonly (readonly [string, string])[] = []) => [
  [':method', 'POST'] as const,
  [':scheme', 'http'] as const,
  [':path', path] as const,
  [':authority', 'x'] as const,
  ['te', 'trailers'] as const,
  ...(more.some(([name]) => name === 'content-type') ? [] : [['content-type', 'application/grpc'] as const]),
  ...more,
];

/** Each dial is pending for a moment, so that the peer can cancel it. */
const DIAL = [
  [':method', 'CONNECT'],
  [':authority', '127.0.0.1:1'],
  ['isthmus-dial', '0123456789abcdef'],
  ['isthmus-tenant', 'default'],
  ['isthmus-deadline', '60000'],
  ['isthmus-session', 'ffffffffffffffff'],
] as const;

/** Frames that break the protocol, sent after the preface and SETTINGS: each must be answered with an error. */
function forbidden(request: readonly (readonly [string, string])[]): readonly [name: string, ...frames: Buffer[]][] {
  const head = frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block(request));
  const window = frame(TYPE.WINDOW_UPDATE, 0, 0, uint32(0x7fffffff));
  return [
    [
      'PUSH_PROMISE of a client',
      head,
      frame(TYPE.PUSH_PROMISE, FLAG.END_HEADERS, 1, Buffer.concat([uint32(2), block(request)])),
    ],
    ['DATA on stream 0', frame(TYPE.DATA, 0, 0, Buffer.from('x'))],
    ['DATA on a stream that is idle', frame(TYPE.DATA, 0, 7, Buffer.from('x'))],
    ['HEADERS on stream 0', frame(TYPE.HEADERS, FLAG.END_HEADERS, 0, block(request))],
    ['HEADERS on an even stream', frame(TYPE.HEADERS, FLAG.END_HEADERS, 2, block(request))],
    ['a frame of 16 MiB', frame(TYPE.DATA, 0, 1, Buffer.alloc(100_000), 0xffffff)],
    ['SETTINGS of 5 bytes', frame(TYPE.SETTINGS, 0, 0, Buffer.alloc(5))],
    ['SETTINGS on a stream', frame(TYPE.SETTINGS, 0, 1)],
    ['ENABLE_PUSH 2', settings([2, 2])],
    ['INITIAL_WINDOW_SIZE of 2^31', settings([4, 2 ** 31])],
    ['MAX_FRAME_SIZE 0', settings([5, 0])],
    ['a connection window beyond 2^31 - 1', window, window],
    ['a window update of 0', head, frame(TYPE.WINDOW_UPDATE, 0, 1, uint32(0))],
    ['PING of 7 bytes', frame(TYPE.PING, 0, 0, Buffer.alloc(7))],
    ['RST_STREAM on an idle stream', frame(TYPE.RST_STREAM, 0, 9, uint32(8))],
    ['CONTINUATION without HEADERS', frame(TYPE.CONTINUATION, FLAG.END_HEADERS, 1, block(request))],
    ['an invalid header block', frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, Buffer.alloc(64, 0xff))],
    ['padding longer than the frame', frame(TYPE.HEADERS, FLAG.END_HEADERS | FLAG.PADDED, 1, Buffer.of(200, 1, 2))],
    ['upper-case header names', frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block([...request, ['X-Upper', 'x']]))],
    ['two methods', frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block([[':method', 'GET'], ...request]))],
    ['GOAWAY on a stream', frame(TYPE.GOAWAY, 0, 1, Buffer.alloc(8))],
  ];
}

/** Frames in one write. */
const AT_ONCE = 500;

/** Valid frames, so many that a library which keeps something for each would run out of memory. */
function floods(
  request: readonly (readonly [string, string])[],
): readonly [name: string, send: (socket: FrameSocket) => Promise<void>][] {
  const section = block(request);
  const head = (stream: number) => frame(TYPE.HEADERS, FLAG.END_HEADERS, stream, section);
  const many = async (socket: FrameSocket, count: number, one: (index: number) => Buffer) => {
    for (let i = 0; i < count && !socket.ended; i += AT_ONCE) {
      await socket.send(...Array.from({ length: Math.min(AT_ONCE, count - i) }, (_, k) => one(i + k)));
    }
  };
  /** Sends the same frame again and again. It is made only once, because the test measures the other side. */
  const same = async (socket: FrameSocket, count: number, one: Buffer) => {
    const chunk = Buffer.concat(Array.from({ length: AT_ONCE }, () => one));
    for (let i = 0; i < count && !socket.ended; i += AT_ONCE) await socket.send(chunk);
  };
  const reset = (stream: number) => frame(TYPE.RST_STREAM, 0, stream, uint32(8));
  return [
    [
      'resets without end',
      async (socket) => {
        socket.answerPings();
        // Resets are counted in windows of 10 s: the slower the machine, the more it needs.
        await many(socket, 1_000_000, (i) => Buffer.concat([head(2 * i + 1), reset(2 * i + 1)]));
        await until(() => socket.ended, { what: 'the end of a connection for its resets' });
      },
    ],
    ['100,000 PINGs', (socket) => same(socket, 100_000, frame(TYPE.PING, 0, 0, Buffer.alloc(8)))],
    ['20,000 SETTINGS', (socket) => same(socket, 20_000, settings([3, 100]))],
    [
      '100,000 empty DATA frames',
      async (socket) => {
        await socket.send(head(1));
        await same(socket, 100_000, frame(TYPE.DATA, 0, 1));
      },
    ],
    [
      'CONTINUATION for ever',
      async (socket) => {
        await socket.send(frame(TYPE.HEADERS, 0, 1, section));
        const more = block([['x', 'x'.repeat(10_000)]]);
        await same(socket, 2_000, frame(TYPE.CONTINUATION, 0, 1, more));
      },
    ],
    [
      'a header bomb: one indexed field, 16,000 times in each of 100 streams',
      async (socket) => {
        const add = Buffer.concat([Buffer.of(0x40), block([['bomb', 'x'.repeat(3000)]]).subarray(1)]);
        const bomb = Buffer.concat([section, add, Buffer.alloc(12_000, 0x80 | 62)]);
        await many(socket, 100, (i) => frame(TYPE.HEADERS, FLAG.END_HEADERS, 2 * i + 1, bomb));
      },
    ],
    ['10,000 WINDOW_UPDATEs', (socket) => same(socket, 10_000, frame(TYPE.WINDOW_UPDATE, 0, 0, uint32(1)))],
    ['10,000 PRIORITYs', (socket) => many(socket, 10_000, (i) => frame(TYPE.PRIORITY, 0, 2 * i + 1, Buffer.alloc(5)))],
    [
      '10,000 frames of unknown types',
      (socket) => many(socket, 10_000, (i) => frame(20 + (i % 200), 0xff, 0, Buffer.alloc(8))),
    ],
  ];
}

/** How much more memory a program may hold after an attack than before, in bytes. */
const HELD = 300 << 20;

test('bad HTTP/2 is refused on every HTTP/2 port and disturbs nothing', async (t) => {
  await using scope = new Scope();
  const peerPort = await freePort();
  const plane = await split(scope, {
    gateways: 1,
    hubs: 1,
    agents: 1,
    hubFlags: { 'peer-port': peerPort, 'advertise-address': `127.0.0.1:${peerPort}` },
  });
  const [gateway, hub, agent] = [plane.gateways[0]!, plane.hubs[0]!, plane.agents[0]!];
  const destination = await echo(scope);
  const programs = [gateway.program, hub.program, agent];
  const victim = await bystander(scope, gateway.connect, destination.authority, programs);
  const { agents, peers } = plane.trust;
  const agentIdentity = await agents.client('rogue');
  const peerIdentity = await peers.peer(['gateway']);

  const callers: Open = async (scope) => new FrameSocket(await raw(scope, gateway.grpc));
  await suite(t, victim, "callers' socket", gateway.program, callers, GRPC('/ProxyService/Proxy'));
  const agentsPort: Open = (scope) => openTls(scope, hub.agentPort, agents.cert, agentIdentity);
  const connect = GRPC('/AgentService/Connect', [['agentid', 'rogue']]);
  await suite(t, victim, "agents' port", hub.program, agentsPort, connect);
  const peersPort: Open = (scope) => openTls(scope, peerPort, peers.cert, peerIdentity, HUB_SERVER_NAME);
  await suite(t, victim, "gateways' port", hub.program, peersPort, DIAL);

  for (const [where, open, path] of [
    ["callers' socket", callers, '/ProxyService/Proxy'],
    ["agents' port", agentsPort, '/AgentService/Connect'],
  ] as const) {
    await badCalls(t, victim, where, open, path);
  }
});

async function suite(
  t: TestContext,
  victim: Bystander,
  where: string,
  program: Program,
  open: Open,
  request: readonly (readonly [string, string])[],
): Promise<void> {
  for (const [name, ...frames] of forbidden(request)) {
    await attack(t, victim, `${where}: ${name}`, async (scope) => {
      const socket = await open(scope);
      await socket.send(PREFACE, settings(), ...frames);
      await socket.refusal();
    });
  }
  for (const [name, flood] of floods(request)) {
    await attack(t, victim, `${where}: ${name}`, async (scope) => {
      const before = await memory(program);
      const socket = await open(scope);
      await socket.send(PREFACE, settings());
      await flood(socket);
      await victim.unharmed();
      const held = (await memory(program)) - before;
      assert.ok(held < HELD, `${held >> 20} MiB more than before`);
    });
  }
}

async function badCalls(t: TestContext, victim: Bystander, where: string, open: Open, path: string): Promise<void> {
  const id = [['agentid', 'rogue-call']] as const;
  const call = async (scope: Scope, fields: readonly (readonly [string, string])[], ...data: Buffer[]) => {
    const socket = await open(scope);
    const parts = data.map((bytes) => frame(TYPE.DATA, 0, 1, bytes));
    await socket.send(PREFACE, settings(), frame(TYPE.HEADERS, FLAG.END_HEADERS, 1, block(fields)), ...parts);
    return socket;
  };
  await attack(t, victim, `${where}: another content type`, async (scope) => {
    const socket = await call(scope, GRPC(path, [['content-type', 'text/html'], ...id]));
    await socket.frame(TYPE.HEADERS, 1);
  });
  await attack(t, victim, `${where}: an invalid method`, async (scope) => {
    for (const path of ['/ProxyService/Nothing', '/', `/${'x'.repeat(8000)}`]) {
      await (await call(scope, GRPC(path, id))).frame(TYPE.HEADERS, 1);
    }
  });
  await attack(t, victim, `${where}: a message of 4 GiB`, async (scope) => {
    const socket = await call(scope, GRPC(path, id), Buffer.of(0, 255, 255, 255, 255, 1, 2, 3));
    await socket.frame(TYPE.HEADERS, 1);
  });
  await attack(t, victim, `${where}: a compressed message`, async (scope) => {
    const socket = await call(scope, GRPC(path, id), Buffer.of(1, 0, 0, 0, 3, 1, 2, 3));
    await socket.frame(TYPE.HEADERS, 1);
  });
}

async function memory(program: Program): Promise<number> {
  return program.value('process_resident_memory_bytes');
}

async function openTls(
  scope: Scope,
  port: number,
  ca: string,
  identity: Identity,
  servername = 'localhost',
): Promise<FrameSocket> {
  const socket: Socket = connectTls({
    port,
    host: '127.0.0.1',
    servername,
    ALPNProtocols: ['h2'],
    ca: readFileSync(ca),
    cert: readFileSync(identity.cert),
    key: readFileSync(identity.key),
  });
  socket.on('error', () => {});
  scope.defer(() => socket.destroy());
  await within(once(socket, 'secureConnect'), { what: 'a TLS handshake' });
  return new FrameSocket(socket);
}
