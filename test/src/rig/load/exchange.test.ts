import assert from 'node:assert/strict';
import { type Duplex, duplexPair } from 'node:stream';
import { test } from 'node:test';
import { APART, Exchange, FRAME_BYTES, FRAME_EVERY } from './exchange.ts';
import { HEADER_BYTES } from './modes.ts';
import { Position } from './pattern.ts';

interface Seen {
  readonly wrong: string[];
  readonly over: (string | undefined)[];
}

function end(stream: Duplex, which: 'caller' | 'destination', tunnel: number, frames: number): Seen & { at: Exchange } {
  const seen: Seen = { wrong: [], over: [] };
  const at = new Exchange(
    stream,
    { tunnel, frames, end: which },
    {
      wrong: (text) => seen.wrong.push(text),
      paused: () => {},
      over: (cut) => seen.over.push(cut),
    },
  );
  return { ...seen, at };
}

/** Both ends of a tunnel, where the destination has read the header. */
async function tunnel(caller: number, destination: number, frames: number) {
  const [near, far] = duplexPair();
  const one = end(near, 'caller', caller, frames);
  const head = await new Promise<Buffer>((resolve) => far.once('data', resolve));
  assert.equal(head.length, HEADER_BYTES);
  return { near, far, one, other: end(far, 'destination', destination, frames) };
}

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

test('two ends that have exchanged all their frames are over, and nothing is cut', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] });
  const { one, other } = await tunnel(7, 7, 3);
  for (let tick = 0; tick < 3; tick++) {
    assert.deepEqual(one.over, []);
    context.mock.timers.tick(FRAME_EVERY);
    await settled();
  }
  assert.deepEqual([one.over, other.over, one.wrong, other.wrong], [[undefined], [undefined], [], []]);
});

test('a tunnel that ends before the last frame was cut', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] });
  const { far, one } = await tunnel(7, 7, 3);
  context.mock.timers.tick(FRAME_EVERY);
  far.destroy();
  await settled();
  assert.equal(one.over.length, 1);
  assert.notEqual(one.over[0], undefined);
});

test("one wrong byte, another tunnel's bytes, the other direction's, and those behind the last frame are found", () => {
  const at = (tunnel: number, way: 0 | 1, length = FRAME_BYTES) =>
    Buffer.from(new Position((2 * tunnel + way) * APART).next(length));
  const wrong = at(7, 1);
  wrong[99] = (wrong[99] as number) ^ 1;
  for (const [bytes, found] of [
    [at(7, 1), 0],
    [wrong, 1],
    [at(8, 1), 1],
    [at(7, 0), 1],
    [at(7, 1, FRAME_BYTES + 1), 1],
  ] as const) {
    const caller = end(duplexPair()[0], 'caller', 7, 1);
    caller.at.take(bytes);
    assert.equal(caller.wrong.length, found);
    assert.equal(caller.over.length, 1);
  }
});
