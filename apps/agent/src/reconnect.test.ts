import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import { ConfiguredServer, Reconnect, type ReconnectOptions } from './reconnect.ts';

const SECOND = 1000;
const SERVER = new ConfiguredServer('server', 1);
const CONFIGURED = { place: SERVER.place, configured: SERVER };

function made(clock = new FakeClock(), more: Partial<ReconnectOptions> = {}): Reconnect {
  return new Reconnect({
    syncInterval: SECOND,
    syncIntervalCap: 8 * SECOND,
    rebalanceTime: 30 * SECOND,
    clock,
    ...more,
  });
}

/** An attempt to reach this address fails. */
function fail(reconnect: Reconnect, place: string, connected = true, refused = false): void {
  const attempt = reconnect.begin({ place }, connected);
  reconnect.end(attempt);
  reconnect.failed(attempt, place, connected, refused);
}

test('without a session an agent seeks at once, with one at a random time within two seconds', () => {
  const clock = new FakeClock();
  const waits = Array.from({ length: 1000 }, () => made(clock).wait(1, true));
  assert.equal(made(clock).wait(2, false), 0);
  assert.ok(waits.every((wait) => wait >= 0 && wait < 2000));
  for (const half of [waits.filter((wait) => wait < 1000), waits.filter((wait) => wait >= 1000)]) {
    assert.ok(half.length > 400, `${half.length} of 1000 in this second`);
  }
});

test('the time that was drawn stands until something changes', async () => {
  const clock = new FakeClock(20_000);
  const reconnect = made(clock);
  const wait = reconnect.wait(1, true);
  await clock.run(100);
  assert.ok(Math.abs(reconnect.wait(1, true) - (wait - 100)) < 1e-6);
  reconnect.anew();
  assert.notEqual(reconnect.wait(1, true), wait - 100);
});

test('attempts that hang begin after 0, 1, 3 and 7 s, and there is no fifth', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const begun: number[] = [];
  for (let second = 0; second < 30; second++) {
    if (reconnect.wait(1, false) === 0) {
      reconnect.begin({ place: `hangs:${second + 1}` }, false);
      begun.push(second);
    }
    await clock.run(1000);
  }
  assert.deepEqual(begun, [0, 1, 3, 7]);
  assert.equal(reconnect.engaged(false).length, 4, 'a hub that hangs is not asked twice');
});

test('as many attempts at once as sessions are missing', () => {
  const reconnect = made();
  for (const expected of [0, 0, 1000]) {
    assert.equal(reconnect.wait(2, false), expected);
    if (expected === 0) reconnect.begin(CONFIGURED, false);
  }
});

test('behind a balancer that hangs the next attempt may lead elsewhere', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  reconnect.begin(CONFIGURED, false);
  assert.equal(reconnect.engaged(false).length, 1);
  await clock.run(1000);
  assert.equal(reconnect.engaged(false).length, 0);
});

test('a list of addresses that all fail is gone through fast, and then slowly', () => {
  const reconnect = made();
  const waits = Array.from({ length: 12 }, () => {
    const wait = reconnect.wait(1, false);
    const attempt = reconnect.begin(CONFIGURED, false);
    reconnect.end(attempt);
    reconnect.failed(attempt, 'server:1', false);
    return wait;
  });
  assert.deepEqual(waits, [...Array(9).fill(0), 250, 250, 250]);
  reconnect.reached();
  assert.equal(reconnect.wait(1, false), 0);
});

test('an agent that has a session makes one attempt in fifteen seconds, and gives it time', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const begun: number[] = [];
  for (let second = 0; second < 40; second++) {
    if (reconnect.wait(1, true) === 0) {
      assert.equal(reconnect.begin({ place: `slow:${second + 1}` }, true).timeout, 40_000);
      begun.push(second);
    }
    await clock.run(1000);
  }
  assert.equal(begun.length, 3);
  const [first = 0, second = 0, third = 0] = begun;
  assert.deepEqual([second - first, third - second], [15, 15]);
});

test('an agent that loses its last session meanwhile waits for none of the attempts that it was patient with', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  for (let second = 0; second < 30; second++) {
    if (reconnect.wait(2, true) === 0) reconnect.begin({ place: `hangs:${second + 1}` }, true);
    await clock.run(1000);
  }
  assert.equal(reconnect.pending.length, 4);
  assert.equal(reconnect.wait(2, false), 0);
  reconnect.begin({ place: 'well:1' }, false);
  assert.equal(reconnect.wait(2, false), 0, 'as many at once as are missing');
  assert.equal(reconnect.engaged(false).length, 5, 'hubs that hang are not asked twice');
});

test('each attempt that takes too long gives the next one twice the time, up to a bound', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const timeouts: number[] = [];
  for (let tried = 0; tried < 4; tried++) {
    const attempt = reconnect.begin(CONFIGURED, false);
    timeouts.push(attempt.timeout);
    await clock.run(attempt.timeout);
    reconnect.end(attempt);
    reconnect.failed(attempt, 'server:1', false);
  }
  assert.deepEqual(timeouts, [10_000, 20_000, 40_000, 40_000]);
  reconnect.reached();
  assert.equal(reconnect.begin(CONFIGURED, false).timeout, 10_000);
});

test('an address that fails waits ever longer, alone, until its hub starts anew', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  for (let failure = 0; failure < 6; failure++) {
    fail(reconnect, 'a:1');
    assert.ok(reconnect.addresses.wait('b:1') <= 0);
    const wait = reconnect.addresses.wait('a:1');
    const ceiling = Math.min(8, 2 ** failure) * SECOND;
    assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${failure + 1} failures`);
    await clock.run(wait);
    assert.ok(reconnect.addresses.wait('a:1') <= 0);
  }
  fail(reconnect, 'a:1');
  reconnect.started(['a:1']);
  assert.ok(reconnect.addresses.wait('a:1') <= 0);
  fail(reconnect, 'a:1');
  assert.ok(reconnect.addresses.wait('a:1') <= SECOND);
});

test('a server that lets an agent in to say that it goes waits: shortly at first, then like one that fails', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const wait = () => reconnect.addresses.wait('a:1');
  reconnect.warned('a:1', 60 * SECOND);
  assert.ok(wait() <= 0, 'a server that is rolled did its work');
  reconnect.warned('a:1', 0);
  assert.ok(wait() >= 50 && wait() <= 100, `${wait()}`);
  for (const ceiling of [1, 2, 4]) {
    await clock.run(wait());
    reconnect.warned('a:1', 100);
    assert.ok(wait() >= ceiling * 500 - 100 && wait() <= ceiling * SECOND - 100, `${wait()} of ${ceiling} s`);
  }
  reconnect.warned('a:1', 10 * SECOND);
  assert.ok(wait() <= 0);
});

test('the first failure of an agent without a session makes it wait shortly, whatever was before', () => {
  const reconnect = made();
  for (let failure = 0; failure < 4; failure++) fail(reconnect, 'a:1');
  reconnect.reached();
  fail(reconnect, 'a:1', false);
  assert.ok(reconnect.addresses.wait('a:1') <= 100);
  fail(reconnect, 'a:1', false);
  assert.ok(reconnect.addresses.wait('a:1') >= 4 * SECOND, 'and changes nothing in what follows');
});

for (const [syncInterval, ceilings] of [
  // From then on as often, because callers may wait for it.
  [SECOND, [50, 100, 200, 400, 800, 1000, 2000, 2000, 2000]],
  [5 * SECOND, [50, 100, 200, 400, 800, 5000, 5000, 5000]],
] as const) {
  test(`where nobody listens yet, an agent without a session asks a few times more, with ${syncInterval} ms between attempts`, () => {
    const reconnect = made(new FakeClock(), { syncInterval });
    ceilings.forEach((ceiling, before) => {
      fail(reconnect, 'a:1', false, true);
      const wait = reconnect.addresses.wait('a:1');
      assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${before} failures`);
    });
  });
}

test('a configured server that leads to nothing new is asked ever more slowly, and more slowly yet if the agent hears of new ones', () => {
  const reconnect = made();
  const wait = () => reconnect.misses.wait(CONFIGURED.place);
  for (let miss = 0; miss < 16; miss++) reconnect.missed(CONFIGURED, true);
  assert.ok(wait() > 0 && wait() <= 8 * SECOND);
  reconnect.missed(CONFIGURED, true);
  assert.ok(wait() >= 30 * SECOND && wait() <= 90 * SECOND);
  reconnect.missed(CONFIGURED, false);
  assert.ok(wait() > 0 && wait() <= 8 * SECOND, 'an agent that nobody tells of new servers goes on');
  reconnect.reached();
  assert.ok(wait() <= 0);
});

test('only so many addresses are remembered', () => {
  const reconnect = made();
  for (let port = 1; port <= 2000; port++) fail(reconnect, `a:${port}`);
  assert.equal(reconnect.addresses.size, 1024);
  assert.ok(reconnect.addresses.has('a:2000'));
});

test('a server that ends each session soon is asked ever more slowly, also by an agent that has no other', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const waits: number[] = [];
  for (let session = 0; session < 8; session++) {
    reconnect.reached();
    await clock.run(1.5 * SECOND);
    reconnect.lost('a:1', 1.5 * SECOND, false);
    waits.push(Math.max(0, reconnect.addresses.wait('a:1')));
    await clock.run(waits.at(-1) as number);
  }
  assert.equal(waits[0], 0, 'the first one is replaced at once');
  for (const wait of waits.slice(4)) assert.ok(wait >= 2.5 * SECOND && wait <= 6.5 * SECOND, `${waits}`);
  reconnect.lost('a:1', 10 * SECOND, false);
  assert.ok(reconnect.addresses.wait('a:1') <= 0, 'one that lasted shows that it is well');
});
