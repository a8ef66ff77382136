import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SeededTime } from '../testing/channel.ts';
import { Sweep, type Swept } from './halves.ts';

/** A sweep of 100 ms, and one of those who may wait there, who notes when it is reminded. */
function waiting(again = false) {
  const time = new SeededTime(1);
  const sweep = new Sweep(time, 100);
  const at: number[] = [];
  const one: Swept = {
    before: undefined,
    behind: undefined,
    remind() {
      at.push(time.now());
      if (again) sweep.enter(one);
    },
  };
  return { time, sweep, one, at };
}

test('who enters is reminded once, after half of the time to all of it', () => {
  const { time, sweep, one, at } = waiting();
  const first: Swept = { before: undefined, behind: undefined, remind() {} };
  sweep.enter(first);
  time.after(30, () => sweep.enter(one));
  time.after(40, () => sweep.enter(one));
  assert.equal(time.run(1000), true);
  assert.deepEqual(at, [100]);
});

test('who leaves is not reminded, wherever it stands, and the others are', () => {
  for (const leaves of [0, 1, 2]) {
    const { time, sweep } = waiting();
    const reminded: number[] = [];
    const all = [0, 1, 2].map((index) => ({
      before: undefined,
      behind: undefined,
      remind: () => void reminded.push(index),
    }));
    for (const each of all) sweep.enter(each);
    sweep.leave(all[leaves] as Swept);
    sweep.leave(all[leaves] as Swept);
    time.run(1000);
    assert.deepEqual(
      reminded,
      [0, 1, 2].filter((index) => index !== leaves),
    );
  }
});

test('who enters again as it is reminded is reminded again, and nothing runs while nobody waits', () => {
  const { time, sweep, one, at } = waiting(true);
  sweep.enter(one);
  time.run(260);
  assert.deepEqual(at, [100, 150, 200, 250]);
  sweep.leave(one);
  assert.equal(time.run(1000), true);
});
