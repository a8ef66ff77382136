import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as answered } from 'node:timers/promises';
import { established, request } from '../testing.ts';
import { DialAbort } from './dial-abort.ts';
import { inSpareTime } from './spare-time.ts';

/** Dials through it, at a time and with a use of the event loop that the test says. */
function spareTime() {
  const state = { now: 0, busy: 0 };
  let tick: (() => void) | undefined;
  const started: string[] = [];
  const dial = inSpareTime(
    async ({ tenant }) => {
      started.push(tenant);
      return established();
    },
    {
      use: () => state.busy,
      now: () => state.now,
      every(_, run) {
        tick = run;
        return () => {
          tick = undefined;
        };
      },
    },
  );
  const of = (tenant: string, signal = new DialAbort()) =>
    dial({ ...request, tenant, signal, deadline: Number.POSITIVE_INFINITY });
  const refused: string[] = [];
  const flood = (tenant: string, count: number) => {
    for (let i = 0; i < count; i++) of(tenant).catch(({ message }: Error) => refused.push(message));
  };
  const pass = (ms: number) => {
    for (let left = ms; left > 0; left -= 20) {
      state.now += 20;
      tick?.();
    }
    return answered();
  };
  const count = (tenant: string) => started.filter((each) => each === tenant).length;
  /** Callers in loops: each asks again once it has its answer. */
  const loops = (tenant: string) => {
    let asked = 0;
    return () => {
      const answers = 256 - (asked - count(tenant));
      flood(tenant, answers);
      asked += answers;
    };
  };
  return { state, of, flood, loops, pass, count, refused, ticks: () => tick !== undefined };
}

test('a flood waits while the event loop is busy, and other tenants do not', async () => {
  const { state, of, flood, pass, count } = spareTime();
  state.busy = 1;
  flood('a', 1000);
  await pass(1000);
  assert.ok(count('a') < 1000, 'some wait');
  const others = async () => {
    for (let i = 0; i < 20; i++) {
      await of('b');
      await pass(40);
    }
  };
  await others();
  const before = count('a');
  await others();
  assert.equal(count('b'), 40, 'none of them waited');
  const started = count('a') - before;
  assert.ok(started >= 35 && started <= 100, `the flood went on, by a few dials a second: ${started}`);
});

test('a flood runs at full speed while the event loop has time to spare', async () => {
  const { state, flood, pass, count } = spareTime();
  state.busy = 0.3;
  for (let i = 0; i < 200; i++) {
    flood('a', 40);
    await pass(20);
  }
  await pass(20);
  assert.equal(count('a'), 8000);
});

test('a tenant beyond its share does not wait for an event loop that is idle', async () => {
  const { state, of, pass, count } = spareTime();
  state.busy = 0.1;
  for (let i = 0; i < 100; i++) {
    for (let j = 0; j < 6; j++) await of('a');
    await pass(20);
  }
  assert.equal(count('a'), 600, '300 a second, none of which waited for a tick');
});

test('a tenant that dials more than never waits, but far less than a flood, does not wait for it', async () => {
  const { state, flood, loops, pass, count } = spareTime();
  state.busy = 1;
  const a = loops('a');
  for (let i = 0; i < 100; i++) {
    a();
    flood('b', 4);
    await pass(20);
  }
  assert.equal(count('b'), 400, '200 a second, none of which waited');
});

test('a tenant that wants more than a flood still starts as many dials as the flood does', async () => {
  const { state, flood, loops, pass, count } = spareTime();
  state.busy = 1;
  const a = loops('a');
  // What had to wait when the event loop stood still.
  flood('b', 3000);
  for (let i = 0; i < 250; i++) {
    a();
    flood('b', 4);
    await pass(20);
  }
  assert.ok(count('b') >= 0.9 * count('a'), `${count('b')} beside ${count('a')}`);
});

test('two floods at once start few dials beside a tenant that does not wait', async () => {
  const { state, flood, loops, pass, count } = spareTime();
  state.busy = 1;
  const [a, b] = [loops('a'), loops('b')];
  const second = async () => {
    for (let i = 0; i < 50; i++) {
      a();
      b();
      flood('c', 1);
      await pass(20);
    }
  };
  for (let i = 0; i < 5; i++) await second();
  const before = count('a') + count('b');
  await second();
  const started = count('a') + count('b') - before;
  assert.ok(started >= 90 && started <= 220, `at least 100 a second together, and 50 each as c has: ${started}`);
  assert.equal(count('c'), 300, 'none of which waited');
});

test('a tenant that dials alone is held back less', async () => {
  const { state, flood, pass, count } = spareTime();
  state.busy = 1;
  flood('a', 4000);
  await pass(1000);
  const alone = count('a');
  await pass(1000);
  const inASecond = count('a') - alone;
  assert.ok(inASecond >= 490 && inASecond <= 510, `500 a second: ${inASecond}`);
});

test('it starts more and more dials once the event loop has time again', async () => {
  const { state, of, flood, pass, count } = spareTime();
  state.busy = 1;
  flood('a', 2000);
  const beside = async (seconds: number) => {
    for (let i = 0; i < 2 * seconds; i++) {
      await of('b');
      await pass(500);
    }
  };
  await beside(3);
  const slow = count('a');
  await beside(1);
  const inASecond = count('a') - slow;
  state.busy = 0.2;
  await beside(1);
  const next = count('a') - slow - inASecond;
  assert.ok(next > 2 * inASecond, `${inASecond}, then ${next}`);
  await pass(5000);
  assert.equal(count('a'), 2000);
});

test('tenants that flood alike start alike', async () => {
  const { state, flood, pass, count } = spareTime();
  state.busy = 1;
  flood('a', 1000);
  flood('b', 1000);
  await pass(5000);
  assert.ok(Math.abs(count('a') - count('b')) <= 10, `${count('a')} and ${count('b')}`);
});

test('a dial waits for ten seconds at most, and says why it was refused', async () => {
  const { state, flood, pass, count, refused } = spareTime();
  state.busy = 1;
  flood('a', 8000);
  await pass(10_020);
  assert.equal(count('a') + refused.length, 8000);
  assert.match(refused[0] ?? '', /^tenant a dials more than this process has time for/);
});

test('a dial whose caller has gone waits no longer', async () => {
  const { state, of, flood, pass, count } = spareTime();
  state.busy = 1;
  flood('a', 2000);
  await pass(1000);
  const signal = new DialAbort();
  const gone = of('a', signal);
  const before = count('a');
  signal.abort();
  await gone;
  assert.equal(count('a'), before + 1, 'what it would dial next sees that nobody waits');
});

test('nothing is scheduled once nobody dials', async () => {
  const { of, pass, ticks } = spareTime();
  await of('a');
  assert.equal(ticks(), true);
  await pass(3000);
  assert.equal(ticks(), false);
});
