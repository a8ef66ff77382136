import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { redisMissing } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import { killChild } from '../harness/processes.ts';
import { unlessSlow } from '../harness/runtime.ts';
import { Scope } from '../harness/scope.ts';
import { Stage } from './stage.ts';

const AGENTS = 300;
/** What each of the fleet's four processes has of a processor. */
const PART = 0.1;
const LOOPS = 4;
const MINUTES = 2;
/** In milliseconds. */
const LOOK_EVERY = 5000;
const DIALS_PER_SECOND = 5;

const PERIOD_US = 100_000;

/** Writes what a control group needs to have a part of a processor. Undefined where none can be made. */
function processorGroup(scope: Scope, part: number): ((pid: number) => void) | undefined {
  const first = existsSync('/sys/fs/cgroup/cpu/cgroup.procs');
  try {
    const dir = mkdtempSync(join(first ? '/sys/fs/cgroup/cpu' : '/sys/fs/cgroup', 'isthmus-'));
    const removed = () => {
      try {
        rmdirSync(dir);
      } catch {}
      return !existsSync(dir);
    };
    scope.defer(() => until(removed, { what: `an empty ${dir}` }));
    const quota = String(PERIOD_US * part);
    if (first) writeFileSync(join(dir, 'cpu.cfs_quota_us'), quota, { flag: 'r+' });
    else writeFileSync(join(dir, 'cpu.max'), `${quota} ${PERIOD_US}`, { flag: 'r+' });
    return (pid) => writeFileSync(join(dir, 'cgroup.procs'), String(pid));
  } catch {
    return undefined;
  }
}

function total(losses: ReadonlyMap<string, number>): number {
  return [...losses.values()].reduce((sum, count) => sum + count, 0);
}

test('a busy machine ends no living session, and a lost hub fails no dial', {
  skip: redisMissing() || unlessSlow(),
  timeout: 900_000,
}, async (context) => {
  await using scope = new Scope();
  const stage = await Stage.start(scope, { hubs: 3, rebalanceTime: 1000 });
  const { fleet, hubs } = stage;
  await stage.populate(AGENTS);
  await fleet.settled();
  for (const worker of fleet.processes) {
    const enter = processorGroup(scope, PART);
    if (!enter) return context.skip('this machine lets nobody make a control group that limits processors');
    enter(worker.pid);
    // It must be empty before its group goes.
    scope.use(worker);
  }
  const loops = Array.from({ length: LOOPS }, () => spawn(process.execPath, ['-e', 'for (;;);'], { stdio: 'ignore' }));
  for (const loop of loops) scope.defer(() => killChild(loop));
  // Those that agents left for better hubs.
  const left = new Map(fleet.losses);
  for (const end = performance.now() + MINUTES * 60_000; performance.now() < end; await sleep(LOOK_EVERY)) {
    await fleet.coverage();
    assert.deepEqual(fleet.losses, left, 'a living session was ended');
  }
  await using load = stage.dialling(DIALS_PER_SECOND);
  await until(() => load.dials.length >= DIALS_PER_SECOND, { what: 'dials before the fault' });
  const [hub] = hubs;
  assert.ok(hub);
  const lost = (await fleet.coverage()).sessions.get(hub.id) ?? 0;
  await hub.program.kill();
  await fleet.complete();
  await load.stop();
  const failures = load.dials.flatMap(({ error = [] }) => error);
  const sessions = total(fleet.losses) - total(left);
  context.diagnostic(`${sessions} sessions were lost; ${load.dials.length} dials, ${failures.length} failed`);
  assert.deepEqual(failures, []);
  assert.equal(sessions, lost, `only the hub's sessions were lost: ${[...fleet.losses]}`);
});
