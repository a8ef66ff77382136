import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { idleShare, Schedule, usableProcessors } from './test-schedule.mjs';
import { sharedSchedule, sharingTurns, TURNS } from './test-turns.mjs';

/** Returns how many of four processors may be used where these files are. */
function usable(files, processors = 4) {
  return usableProcessors(processors, (path) => {
    if (files[path] === undefined) throw new Error(`no file ${path}`);
    return files[path];
  });
}

test('the quota of the control group limits the processors', () => {
  const [V2, V1] = ['/sys/fs/cgroup/cpu.max', '/sys/fs/cgroup/cpu/cpu.cfs_'];
  assert.equal(usable({}), 4);
  assert.equal(usable({}, 3), 3);
  assert.equal(usable({ [V2]: 'max 100000\n' }), 4);
  assert.equal(usable({ [V2]: '150000 100000\n' }), 1.5);
  assert.equal(usable({ [V2]: '900000 100000\n' }), 4);
  assert.equal(usable({ [`${V1}quota_us`]: '-1\n', [`${V1}period_us`]: '100000\n' }), 4);
  assert.equal(usable({ [`${V1}quota_us`]: '200000\n', [`${V1}period_us`]: '100000\n' }), 2);
});

test("the machine's idle processors count only if all of them may be used", () => {
  let idle = 0;
  const read = () => [0, 1].map(() => ({ user: 0, idle: idle++ }));
  assert.equal(idleShare({ usable: 2, read })(), 1);
  assert.equal(idleShare({ usable: 1.5, read })(), 0);
});

test('the longest job that waits is the next', async () => {
  const schedule = new Schedule({ atOnce: 1, idle: () => 0 });
  const order = [];
  const run = async (name, cost) => {
    const end = await schedule.turn({ name, files: 1, cost });
    order.push(name);
    end();
  };
  await Promise.all([run('first', 1), run('short', 2), run('long', 4), run('middle', 3)]);
  assert.deepEqual(order, ['first', 'long', 'middle', 'short']);
});

test('more jobs run while processors are idle, up to a limit', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  let share = 0;
  const schedule = new Schedule({ atOnce: 2, idle: () => share, print: () => {} });
  const ends = [];
  for (let n = 0; n < 8; n++) void schedule.turn({ name: `${n}`, files: 1, cost: 1 }).then((end) => ends.push(end));
  const begun = async (seconds) => {
    t.mock.timers.tick(1000 * seconds);
    await new Promise((resolve) => setImmediate(resolve));
    return ends.length;
  };
  assert.equal(await begun(5), 2);
  share = 1;
  assert.equal(await begun(1), 3);
  assert.equal(await begun(5), 6);
  while (ends.length > 0) {
    ends.shift()();
    await begun(0);
  }
});

test('a command shares a schedule over its socket, and gives its turn back when it ends', async () => {
  const events = new EventEmitter();
  const turn = async (job) => {
    events.emit('asked', job);
    await once(events, 'begin');
    return () => events.emit('ended');
  };
  const job = { name: 'a', files: 3, cost: 7 };
  const command = async ({ [TURNS]: path }) => {
    const asked = once(events, 'asked');
    const begun = sharedSchedule(path).turn(job);
    assert.deepEqual(await asked, [job]);
    assert.equal(await Promise.race([begun, setTimeout(20, 'not yet')]), 'not yet');
    events.emit('begin');
    const end = await begun;
    const ended = once(events, 'ended');
    end();
    await ended;
  };
  await sharingTurns(command, { turn });
  assert.equal(sharedSchedule(''), undefined);
});
