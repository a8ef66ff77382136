import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Pings } from './pings.ts';

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
