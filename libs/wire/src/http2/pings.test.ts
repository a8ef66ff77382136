import assert from 'node:assert/strict';
import { afterEach, describe, mock, test } from 'node:test';
import { guarding } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';
import { Keepalive, Pings } from './pings.ts';

/** PINGs whose clock stands still until one is answered. */
function pings(t: { mock: { method: typeof import('node:test').mock.method } }) {
  let now = 0;
  t.mock.method(performance, 'now', () => now);
  const traffic = { unread: 0, received: 0 };
  const all = new Pings({ unread: () => traffic.unread, received: () => traffic.received });
  /** A PING is answered after so many milliseconds. @param received bytes that come meanwhile */
  const answered = (ms: number, { unread = 0, received = 0, checkpoint = false } = {}) => {
    traffic.unread = unread;
    if (checkpoint) all.checkpoint(() => {});
    else all.begin();
    now += ms;
    traffic.received += received;
    all.answered();
    return all.rtt;
  };
  return { all, answered };
}

test('the round-trip time of a path that has become longer is known after two PINGs that waited for nothing', (t) => {
  const { answered } = pings(t);
  assert.deepEqual([answered(0.5), answered(100), answered(101)], [0.5, 0.625, 100]);
  assert.equal(answered(0.5), 0.5);
});

test('one late answer of a process that is busy is no longer path', (t) => {
  const { answered } = pings(t);
  answered(1);
  answered(200);
  assert.ok(answered(1.5) <= 1.5);
  assert.ok(answered(200) < 3);
});

test('the time that PINGs wait behind bytes of either side is no round-trip time', (t) => {
  const { answered } = pings(t);
  answered(1);
  for (let i = 0; i < 3; i++) {
    answered(1000, { received: 100_000 });
    answered(1000, { unread: 100_000 });
  }
  const pinged = answered(1);
  assert.equal(pinged, 1);
  for (let i = 0; i < 100; i++) answered(1000, { unread: 100_000, checkpoint: true });
  assert.equal(answered(1000, { unread: 100_000, checkpoint: true }), 1);
});

test('sixteen PINGs may wait, and any number of checkpoints', (t) => {
  const { all } = pings(t);
  for (let i = 0; i < 16; i++) assert.equal(all.begin(), true);
  assert.equal(all.begin(), false);
  for (let i = 0; i < 20; i++) all.checkpoint(() => {});
  all.answered();
  assert.equal(all.begin(), true);
});

describe('keepalive', () => {
  afterEach(() => mock.timers.reset());

  /** In steps, since timers that begin within one would count from its end. */
  function pass(ms: number): void {
    for (let left = ms; left > 0; left -= 10_000) mock.timers.tick(10_000);
  }

  function watch(keepaliveMs: number) {
    mock.timers.enable({ apis: ['setTimeout'] });
    const said: string[] = [];
    const own = new Keepalive({
      config: WIRE,
      keepaliveMs,
      ping: () => void said.push('ping'),
      dead: (error) => void said.push(error.message),
      guarded: guarding(assert.ifError),
    });
    return { own, said };
  }

  test('a peer that sends no SETTINGS is given up', () => {
    const { own, said } = watch(60_000);
    own.awaitGreeting();
    pass(10_000);
    assert.deepEqual(said, ['no SETTINGS within 10 s']);
  });

  test('a peer is pinged when it was silent, and given up when it stays so', () => {
    const { own, said } = watch(60_000);
    own.watch();
    for (let i = 0; i < 10; i++) {
      pass(60_000);
      own.heard = true;
    }
    assert.deepEqual(said, []);
    pass(120_000);
    assert.deepEqual(said, ['ping']);
    own.heard = true;
    pass(20_000 + 60_000);
    assert.deepEqual(said, ['ping'], 'what came was answer enough');
    pass(60_000);
    assert.deepEqual(said, ['ping', 'ping']);
    pass(20_000);
    assert.deepEqual(said, ['ping', 'ping', 'silent for 20 s, even after a PING']);
  });

  test('a keepalive longer than a timer pings nobody, and one that is stopped neither', () => {
    const { own, said } = watch(2 ** 40);
    own.watch();
    pass(1_000_000);
    own.stop();
    mock.timers.tick(2 ** 31);
    assert.deepEqual(said, []);
  });
});
