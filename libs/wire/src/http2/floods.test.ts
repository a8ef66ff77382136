import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { WIRE } from '../defaults.ts';
import { Allowance, FloodGuard } from './floods.ts';
import { ConnectionError, ErrorCode, FrameType } from './frames.ts';

/** A clock that moves when it is told to. */
function clockOf({ mock }: TestContext) {
  const clock = { ms: 0, looks: 0 };
  mock.method(performance, 'now', () => {
    clock.looks++;
    return clock.ms;
  });
  return clock;
}

/** A guard, and how many frames it takes until it has enough. */
function guarded() {
  const guard = new FloodGuard();
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

test('a burst is taken, and then as many as time allows', (context) => {
  const clock = clockOf(context);
  const { takes } = guarded();
  const about = (count: number, wanted: number) => assert.ok(Math.abs(count - wanted) <= 3, `${count}, not ${wanted}`);
  about(takes(ping), 10_000);
  clock.ms += 2_000;
  about(takes(ping), 2_000);
  clock.ms += 3_600_000;
  // An hour of silence allows no more than one burst.
  about(takes(ping), 10_000);
});

test('SETTINGS and GOAWAY, which may look at every stream, are taken less often', (context) => {
  const clock = clockOf(context);
  for (const type of [FrameType.SETTINGS, FrameType.GOAWAY]) {
    const { takes } = guarded();
    assert.equal(
      takes((guard) => guard.came(type)),
      50,
    );
    clock.ms += 2_000;
    assert.ok(takes((guard) => guard.came(type)) <= 10);
  }
});

test('who gets data may send windows’ updates and PINGs for it, at any rate', (context) => {
  clockOf(context);
  const { takes } = guarded();
  const sent = (guard: FloodGuard, bytes: number) => {
    guard.earned += WIRE.floodEarnedByFrame + bytes * WIRE.floodEarnedByByte;
  };
  const round = (guard: FloodGuard) => {
    sent(guard, 16_384);
    // As Go's client reads: an update for each 4 KiB, of the stream and of the connection, and a PING.
    for (let n = 0; n < 8; n++) guard.came(FrameType.WINDOW_UPDATE);
    ping(guard);
  };
  assert.equal(takes(round, 100_000), 100_000);
  const small = (guard: FloodGuard) => {
    sent(guard, 1);
    ping(guard);
    guard.came(FrameType.WINDOW_UPDATE);
  };
  assert.equal(takes(small, 100_000), 100_000);
});

/** A burst after a rest may be a sixteenth larger, and the cost that crosses it. */
const MOST = 1701;
const LIMITS = { atOnce: 1600, perSecond: 100 };

function allowance(context: TestContext) {
  return { clock: clockOf(context), bucket: new Allowance(LIMITS) };
}

/** What can be spent at once. */
function burst(bucket: Allowance): number {
  let spent = 0;
  while (bucket.spend(1)) spent++;
  return spent;
}

for (const before of [0, 1, 50]) {
  test(`a burst after a rest is no larger than one at once, with ${before} spent before the rest`, (context) => {
    const { clock, bucket } = allowance(context);
    for (let spent = 0; spent < before; spent++) bucket.spend(1);
    clock.ms = 60_000;
    const spent = burst(bucket);
    assert.ok(spent >= 1600 - before && spent <= MOST, `${spent}`);
    assert.ok(clock.looks < 20, `${clock.looks}`);
  });
}

test('a burst after a rest is no larger when something was earned before', (context) => {
  const { clock, bucket } = allowance(context);
  burst(bucket);
  bucket.earn(10_000);
  clock.ms = 60_000;
  const spent = burst(bucket);
  assert.ok(spent <= MOST, `${spent}`);
});

test('what is spent no faster than it comes back is never too much', (context) => {
  const { clock, bucket } = allowance(context);
  for (let spent = 0; spent < 100_000; spent++) {
    assert.ok(bucket.spend(1), `${spent}`);
    clock.ms += 10;
  }
});

test('an empty bucket fills as time goes by', (context) => {
  const { clock, bucket } = allowance(context);
  burst(bucket);
  clock.ms += 2000;
  const spent = burst(bucket);
  assert.ok(spent >= 198 && spent <= 200, `${spent}`);
});
