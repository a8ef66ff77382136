import assert from 'node:assert/strict';
import { test } from 'node:test';
import { idleShare, usableProcessors } from './test-schedule.mjs';

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
