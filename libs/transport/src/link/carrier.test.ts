import assert from 'node:assert/strict';
import { once } from 'node:events';
import net, { type Socket } from 'node:net';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { queryObjects } from 'node:v8';
import { SharedBudget, systemClock, Waiting } from '@isthmus/runtime';
import { changed, until } from '@isthmus/runtime/testing';
import type { StreamUser } from '@isthmus/tunnel';
import { AgentTunnel, halvesOf } from '@isthmus/tunnel/testing';
import { ErrorCode, encodeHead, Http2Link, type Http2Stream, WIRE } from '@isthmus/wire';
import { cleanups } from '../testing/cleanups.ts';
import { listen } from './testing.ts';
import { StreamEnd } from './tunnel-end.ts';

const KIB = 1024;
const HEAD = { ':method': 'CONNECT', ':authority': 'h:1' };

/** A link over a real connection, the ends of the streams that its client opens, and what they have told their link. */
async function linked() {
  const [budget, local, excess] = [new SharedBudget(0), new SharedBudget(0), new SharedBudget(128 * KIB, true)];
  const accepted = Promise.withResolvers<Socket>();
  const port = await listen(net.createServer({ allowHalfOpen: true }, accepted.resolve));
  const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  const server = new Http2Link({
    role: 'server',
    socket: await accepted.promise,
    config: { windowBytes: 16 * KIB },
    rules: { growth: { budget, local, largest: 64 * KIB, excess } },
  });
  const client = new Http2Link({ role: 'client', socket });
  cleanups.push(() => client.destroy(new Error('test over')));
  const ends: StreamEnd[] = [];
  const closed: number[] = [];
  const link = { peer: 'hub', far: 'caller', closed: ({ id }: Http2Stream) => void closed.push(id) } as const;
  server.on('begun', (stream) => {
    stream.answer(encodeHead({ ':status': 200 }));
    ends.push(new StreamEnd(stream, link, { closed() {} }));
  });
  /** How many KiB came beyond windows, and are not given back. */
  const held = () => 128 - excess.left / KIB;
  return { client, ends, closed, held };
}

/** A half that notes how often it was told of the end of its stream. */
function ear(told: () => void = () => {}): StreamUser & { closes: number } {
  return {
    closes: 0,
    onData() {},
    onMark() {},
    onEnd() {},
    onWritable() {},
    onClose() {
      this.closes++;
      told();
    },
  };
}

test('a half that drops a carrier whose reset is about to be told hears nothing of it, and the link hears once', async () => {
  // One in each tick: the ends of others wait for the next ones.
  using _ = changed(WIRE, { closingsATick: 1 });
  const { client, ends, closed, held } = await linked();
  const streams = Array.from({ length: 3 }, () => client.begin(HEAD));
  streams[2]?.write(Buffer.alloc(40 * KIB));
  await until(() => ends.length === 3 && held() === 24);
  const [first, second, third] = ends as [StreamEnd, StreamEnd, StreamEnd];
  const dropped = ear();
  const seen: unknown[] = [];
  // Both resets come in one read, and the end of the third stream has to wait.
  const dropping = ear(() =>
    queueMicrotask(() => {
      seen.push(third.stream.closed, third.stream.code, dropped.closes);
      third.drop();
    }),
  );
  first.deliverTo(ear());
  second.deliverTo(dropping);
  third.deliverTo(dropped);
  streams[0]?.reset(ErrorCode.CANCEL);
  await until(() => first.stream.closed);
  await setImmediate();
  for (const stream of streams.slice(1)) stream.reset(ErrorCode.CANCEL);
  await until(() => seen.length > 0 && held() === 0);
  assert.deepEqual(seen, [true, ErrorCode.CANCEL, 0]);
  await setImmediate();
  assert.deepEqual([dropped.closes, closed], [0, [third.stream.id]]);
});

test('a half that drops a carrier of which data is unread gives back what that held, and reads what the next one brings', async () => {
  for (const goesOn of [false, true]) {
    const { client, ends, closed, held } = await linked();
    const streams = [client.begin(HEAD), client.begin(HEAD)] as const;
    streams[0].write(Buffer.alloc(40 * KIB, 'a'));
    await until(() => ends.length === 2 && held() === 24);
    const [old, next] = ends as [StreamEnd, StreamEnd];
    const halves = halvesOf({ timeoutMs: 60_000, budget: new SharedBudget(0) }, systemClock, 64 * KIB, 64 * KIB);
    const half = new AgentTunnel({ tenant: 'acme', destination: { host: 'h', port: 1 } }, '', halves, () => {});
    let [read, closes] = [0, 0];
    half.use({
      onData({ length }) {
        read += length;
      },
      onDrain() {},
      onEnd() {},
      onClose: () => void closes++,
    });
    half.pause();
    half.start(old);
    assert.deepEqual([held(), read], [24, 0]);
    if (goesOn) half.attach({ number: 1, received: 0, taken: 0 }, () => next);
    else half.abort(new Error('the destination went away'));
    assert.deepEqual([held(), old.stream.closed, closed, closes], [0, true, [old.stream.id], goesOn ? 0 : 1]);
    half.resume();
    assert.equal(read, 0, 'the next carrier brings it again');
    if (!goesOn) continue;
    streams[1].write(Buffer.alloc(40 * KIB, 'a'));
    await until(() => read === 40 * KIB && held() === 0);
    half.abort(new Error('test over'));
  }
});

test('an end whose stream a half has keeps nothing of what came before', { skip: 'Deno' in globalThis }, async () => {
  const before = queryObjects(Waiting, { format: 'count' });
  const marks: WeakRef<object>[] = [];
  const half = { ...ear(), onMark: (payload: Uint8Array) => void marks.push(new WeakRef(payload)) };
  const stream = { complete: false, consume() {} } as unknown as Http2Stream;
  const ends = Array.from({ length: 100 }, () => {
    const end = new StreamEnd(stream, { peer: 'hub', far: 'caller', closed() {} }, { closed() {} });
    end.onData(Buffer.alloc(100));
    end.onMark(Buffer.alloc(7));
    end.deliverTo(half);
    return end;
  });
  // What a WeakRef was asked for, or made of, stays until the next tick.
  await setImmediate();
  const waiting = queryObjects(Waiting, { format: 'count' }) - before;
  assert.deepEqual([ends.length, waiting, marks.filter((mark) => mark.deref()).length], [100, 0, 0]);
});
