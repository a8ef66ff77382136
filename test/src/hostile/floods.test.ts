import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';
import test from 'node:test';
import { GrpcServer, LinkClient, LinkServer } from '@isthmus/transport';
import { DialError, planeEvents } from '@isthmus/tunnel';
import { Scope, until } from '../harness/index.ts';
import { block, FLAG, FrameSocket, frame, PREFACE, settings, TYPE, uint32 } from './frames.ts';

/**
 * How often a connection may react to frames that carry nothing, counted by its answers: at most this often, however many the peer sends.
 * Frames that may visit every stream have a bound of their own.
 */
interface Bound {
  readonly atOnce: number;
  readonly perSecond: number;
}

const EACH: Bound = { atOnce: 10_000, perSecond: 1_000 };
const PASSES: Bound = { atOnce: 50, perSecond: 5 };

/** For frames that visit every stream; other frames use few streams. */
const STREAMS = 9_900;
const FEW = 100;
const LOOKS = 'SETTINGS that change each window';

type Fields = readonly (readonly [string, string])[];

interface Victim {
  readonly request: Fields;
  /** @returns why it ended the connection */
  serve(socket: Socket): Promise<Error>;
}

const VICTIMS: Readonly<Record<string, Victim>> = {
  "callers' port": {
    request: [
      [':method', 'POST'],
      [':scheme', 'http'],
      [':path', '/a.B/C'],
      ['te', 'trailers'],
      ['content-type', 'application/grpc'],
    ],
    serve(socket) {
      const events = planeEvents();
      // Streams that stay open and send nothing.
      const service = { path: '/a.B/C', serve() {} };
      const server = new GrpcServer({
        service,
        events,
        name: 'grpc',
        keepaliveMs: 3_600_000,
        streamWindow: 1024,
      });
      server.accept(socket);
      return new Promise((resolve) => events.once('refused', (_where, _remote, error) => resolve(error)));
    },
  },
  'a link': {
    request: [
      [':method', 'CONNECT'],
      [':authority', 'h:1'],
      ['isthmus-dial', '0123456789abcdef'],
      ['isthmus-tenant', 'default'],
      ['isthmus-deadline', '3600000'],
    ],
    serve(socket) {
      // Dials that stay pending until the link has ended.
      const dial = ({ signal }: { signal: { addEventListener(type: 'abort', listener: () => void): void } }) =>
        new Promise<never>((_, reject) => {
          signal.addEventListener('abort', () => reject(new DialError('connection_terminated', 'abandoned')));
        });
      return new LinkServer({ socket, peer: 'rogue', role: 'hub', dial, events: planeEvents() }).closed;
    },
  },
};

/** Both ends of a connection: the peer's and the victim's. */
async function socketPair(scope: Scope): Promise<[Socket, Socket]> {
  const listener = net.createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const socket = net.connect((listener.address() as AddressInfo).port, '127.0.0.1');
  const [victim] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  for (const each of [socket, victim]) {
    each.on('error', () => {});
    scope.defer(() => each.destroy());
  }
  return [socket, victim];
}

/** A peer whose victim has many streams open. */
async function withStreams(scope: Scope, count: number, { request, serve }: Victim) {
  const [socket, victim] = await socketPair(scope);
  const reason = serve(victim);
  const peer = new FrameSocket(socket);
  const head = block(request);
  await peer.send(PREFACE, settings());
  for (let n = 0; n < count; n += 100) {
    const heads = Array.from({ length: 100 }, (_, k) => frame(TYPE.HEADERS, FLAG.END_HEADERS, 2 * (n + k) + 1, head));
    await peer.send(...heads);
  }
  await peer.send(frame(TYPE.PING, 0, 0, Buffer.from('are open')));
  await until(() => peer.frames.some(({ type, flags }) => type === TYPE.PING && flags & FLAG.ACK), {
    what: () => 'the answer to a PING behind all heads',
  });
  return { peer, reason };
}

/** Frames that carry nothing, and the type of the answer, if there is one. */
const FLOODS: readonly [name: string, answer: number | undefined, bound: Bound, one: (n: number) => Buffer][] = [
  [LOOKS, TYPE.SETTINGS, PASSES, (n) => settings([4, 65_535 + (n % 100)])],
  ['SETTINGS that say nothing', TYPE.SETTINGS, PASSES, () => settings()],
  ['PINGs', TYPE.PING, EACH, () => frame(TYPE.PING, 0, 0, Buffer.alloc(8))],
  ['answers to PINGs', undefined, EACH, () => frame(TYPE.PING, FLAG.ACK, 0, Buffer.alloc(8))],
  ['GOAWAYs', undefined, PASSES, (n) => frame(TYPE.GOAWAY, 0, 0, Buffer.concat([uint32(100_000 - n), uint32(0)]))],
  ['updates of the connection’s window by 1', undefined, EACH, () => frame(TYPE.WINDOW_UPDATE, 0, 0, uint32(1))],
  ['updates of streams’ windows by 1', undefined, EACH, (n) => frame(TYPE.WINDOW_UPDATE, 0, streamOf(n), uint32(1))],
  ['empty DATA', undefined, EACH, (n) => frame(TYPE.DATA, 0, streamOf(n))],
  ['PRIORITYs', undefined, EACH, (n) => frame(TYPE.PRIORITY, 0, streamOf(n), Buffer.alloc(5))],
  ['frames of an unknown type', undefined, EACH, () => frame(99, 0, 0)],
];

function streamOf(n: number): number {
  return 2 * (n % FEW) + 1;
}

for (const [where, victim] of Object.entries(VICTIMS)) {
  for (const [name, answer, bound, one] of FLOODS) {
    const streams = name === LOOKS ? STREAMS : FEW;
    test(`${where} with ${streams} streams ends a connection that floods it with ${name}`, async () => {
      await using scope = new Scope();
      const since = performance.now();
      const { peer, reason } = await withStreams(scope, streams, victim);
      const before = peer.frames.length;
      let why: Error | undefined;
      void reason.then((error) => {
        why = error;
      });
      for (let sent = 0; !why; await new Promise(setImmediate)) {
        assert.ok(sent < 200_000, 'the victim accepts everything');
        await peer.send(...Array.from({ length: 100 }, () => one(sent++)));
      }
      assert.match(why.message, /too many frames that carry nothing/);
      const most = bound.atOnce + (bound.perSecond * (performance.now() - since)) / 1000;
      const answers = peer.frames.slice(before).filter(({ type }) => type === answer).length;
      assert.ok(answers <= most, `${answers} answers, not ${most}`);
    });
  }
}

/** How many control messages a link accepts. */
const MESSAGES: Bound = { atOnce: 1_000, perSecond: 100 };

/** Each of these counts, even one that the link ignores. */
const CHATTER: Readonly<Record<string, string>> = {
  drain: '{"type":"drain"}',
  'a list of hubs': '{"type":"membership","current":true,"hubs":[]}',
  'an unknown type': '{"type":"later"}',
  'what cannot be read': '{"type":"hung-up"}',
};

for (const [name, message] of Object.entries(CHATTER)) {
  test(`both sides of a link end a peer that floods its control stream with ${name}`, async () => {
    const serving = await chatter(message, async (scope, heard) => {
      const serve = (socket: Socket) => linkServer(socket, heard).closed;
      const { peer, reason } = await withStreams(scope, FEW, { ...(VICTIMS['a link'] as Victim), serve });
      const id = 2 * FEW + 1;
      await peer.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, CONTROL));
      return { peer, reason, id };
    });
    const dialling = await chatter(message, async (scope, heard) => {
      const [socket, victim] = await socketPair(scope);
      const peer = new FrameSocket(socket, PREFACE.length);
      const events = planeEvents().on('refused', heard);
      const link = new LinkClient({ socket: victim, peer: 'rogue', receive: heard, events });
      await peer.send(settings());
      const { stream: id } = await peer.frame(TYPE.HEADERS);
      await peer.send(frame(TYPE.HEADERS, FLAG.END_HEADERS, id, block([[':status', '200']])));
      return { peer, reason: link.closed, id };
    });
    for (const { why, heard, most } of [serving, dialling]) {
      assert.match(why.message, /more control messages than 1000 at once/);
      assert.ok(heard <= most, `${heard} were heard, not ${most}`);
    }
  });
}

const CONTROL = block([
  [':method', 'POST'],
  [':scheme', 'http'],
  [':authority', 'link'],
  [':path', '/control'],
]);

function linkServer(socket: Socket, heard: () => void): LinkServer {
  const events = planeEvents().on('refused', heard);
  const dial = () => new Promise<never>(() => {});
  return new LinkServer({ socket, peer: 'rogue', role: 'hub', dial, events, goaway: heard, receive: heard });
}

interface Chatted {
  readonly peer: FrameSocket;
  /** The control stream. */
  readonly id: number;
  readonly reason: Promise<Error>;
}

/** Sends a message until the link ends. @returns why it ended, how many messages it handled, and how many it may */
async function chatter(message: string, begin: (scope: Scope, heard: () => void) => Promise<Chatted>) {
  await using scope = new Scope();
  const since = performance.now();
  let heard = 0;
  const { peer, reason, id } = await begin(scope, () => void heard++);
  const line = Buffer.from(`${message}\n`.repeat(100));
  let why: Error | undefined;
  void reason.then((error) => {
    why = error;
  });
  for (let sent = 0; !why; await new Promise(setImmediate)) {
    assert.ok(sent < 200_000, 'the victim accepts everything');
    await peer.send(frame(TYPE.DATA, 0, id, line));
    sent += 100;
  }
  return { why, heard, most: MESSAGES.atOnce + (MESSAGES.perSecond * (performance.now() - since)) / 1000 };
}
