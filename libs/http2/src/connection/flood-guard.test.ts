import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConnectionError, ErrorCode, Flag, FrameType } from '../codes.ts';
import { FloodGuard } from './flood-guard.ts';

/** A guard, and how many frames it takes until it has enough. */
function guardAt(now: () => number) {
  const guard = new FloodGuard(now);
  const takes = (come: (guard: FloodGuard) => void, most = 1_000_000) => {
    for (let count = 0; count < most; count++) {
      try {
        come(guard);
      } catch (error) {
        assert.ok(error instanceof ConnectionError && error.code === ErrorCode.ENHANCE_YOUR_CALM);
        return count;
      }
    }
    return most;
  };
  return { guard, takes };
}

const ping = (guard: FloodGuard) => guard.came(FrameType.PING);

test('a burst is taken, and then as many as time allows', () => {
  let now = 0;
  const { takes } = guardAt(() => now);
  const about = (count: number, wanted: number) => assert.ok(Math.abs(count - wanted) <= 3, `${count}, not ${wanted}`);
  about(takes(ping), 10_000);
  now += 2_000;
  about(takes(ping), 2_000);
  now += 3_600_000;
  // An hour of silence allows no more than one burst.
  about(takes(ping), 10_000);
});

test('SETTINGS and GOAWAY, which may look at every stream, are taken less often', () => {
  for (const type of [FrameType.SETTINGS, FrameType.GOAWAY]) {
    let now = 0;
    const { takes } = guardAt(() => now);
    assert.equal(
      takes((guard) => guard.came(type)),
      50,
    );
    now += 2_000;
    assert.ok(takes((guard) => guard.came(type)) <= 10);
  }
});

test('heads, data and the ends of streams are bounded elsewhere', () => {
  const { guard, takes } = guardAt(() => 0);
  const each = [FrameType.HEADERS, FrameType.CONTINUATION, FrameType.RST_STREAM];
  for (const type of each)
    assert.equal(
      takes((guard) => guard.came(type), 100_000),
      100_000,
    );
  assert.equal(
    takes(() => guard.data(1, 0), 100_000),
    100_000,
  );
  assert.equal(
    takes(() => guard.data(0, Flag.END_STREAM), 100_000),
    100_000,
  );
  assert.equal(
    takes(() => guard.data(0, 0)),
    10_000,
  );
});

test('who gets data may send windows’ updates and PINGs for it, at any rate', () => {
  const { takes } = guardAt(() => 0);
  const round = (guard: FloodGuard) => {
    guard.sent(16_384);
    // As Go's client reads: an update for each 4 KiB, of the stream and of the connection, and a PING.
    for (let n = 0; n < 8; n++) guard.came(FrameType.WINDOW_UPDATE);
    ping(guard);
  };
  assert.equal(takes(round, 100_000), 100_000);
  const small = (guard: FloodGuard) => {
    guard.sent(1);
    ping(guard);
    guard.came(FrameType.WINDOW_UPDATE);
  };
  assert.equal(takes(small, 100_000), 100_000);
});
