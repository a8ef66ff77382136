import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Child, ChildFailed, Fleet } from './fleet.ts';

const WAITS = 'echo ready; while :; do sleep 0.05; done';

function shell(name: string, script: string, onLine?: (line: string) => void) {
  return { name, command: ['sh', '-c', script], ...(onLine && { onLine }) };
}

/** Starts a shell script, and resolves when it has printed its first line. */
async function started(fleet: Fleet, tier: number, name: string, script: string): Promise<Child> {
  let said = false;
  const child = fleet.start(
    tier,
    shell(name, script, () => {
      said = true;
    }),
  );
  await child.until(async () => said, 60_000);
  return child;
}

test('a program that exits by itself is reported with its last output', async () => {
  const fleet = new Fleet(1);
  fleet.start(0, shell('hub', 'echo one; echo two >&2; exit 3'));
  await assert.rejects(fleet.death, (failure) => {
    assert.ok(failure instanceof ChildFailed);
    assert.equal(failure.message, 'hub ended with status 3');
    assert.deepEqual([...failure.lastLines].sort(), ['one', 'two']);
    return true;
  });
  await fleet.stop(60_000);
});

test('a program that is not installed is reported with what to do', async () => {
  const fleet = new Fleet(1);
  fleet.start(0, {
    name: 'redis-server',
    command: ['isthmus-no-such-program'],
    missing: 'is not installed. Install it.',
  });
  await assert.rejects(fleet.death, { message: 'redis-server is not installed. Install it.' });
  await fleet.stop(60_000);
});

test('tiers end one after the other, each with SIGTERM', async () => {
  const fleet = new Fleet(2);
  const gone: string[] = [];
  for (const [tier, name] of [
    [1, 'redis'],
    [0, 'gateway'],
  ] as const) {
    const child = await started(fleet, tier, name, `trap 'exit 0' TERM; ${WAITS}`);
    child.gone.then((how) => gone.push(`${name} ${how}`));
  }
  assert.deepEqual(await fleet.stop(60_000), []);
  assert.deepEqual(gone, ['gateway ended with status 0', 'redis ended with status 0']);
});

test('a program that does not exit when asked is killed', async () => {
  const fleet = new Fleet(1);
  const child = await started(fleet, 0, 'agent', `trap '' TERM; ${WAITS}`);
  const failures = await fleet.stop(100);
  assert.deepEqual(
    failures.map(({ message }) => message),
    ['agent did not end within 0.1 s and was killed'],
  );
  assert.equal(await child.gone, 'was ended by SIGKILL');
});

test('a program that is not ready in time is reported', async () => {
  const fleet = new Fleet(1);
  const child = await started(fleet, 0, 'agent', WAITS);
  await assert.rejects(
    child.until(async () => false, 100),
    { message: 'agent was not ready after 0.1 s', lastLines: ['ready'] },
  );
  await fleet.stop(60_000);
});

test('a program that ends is started again, and the demo ends if it keeps ending', async () => {
  const fleet = new Fleet(1);
  const told: string[] = [];
  const child = await started(fleet, 0, 'hub', WAITS);
  const back = new Promise<Child>((resolve) => {
    fleet.revive({ died: ({ message }) => told.push(message), back: resolve });
  });
  child.kill();
  const again = await back;
  assert.notEqual(again.pid, child.pid);
  assert.deepEqual(told, ['hub was ended by SIGKILL']);
  fleet.start(0, { name: 'agent', command: ['false'], ready: async () => false });
  await assert.rejects(fleet.death, { message: 'agent ended with status 1' });
  assert.equal(told.filter((each) => each.startsWith('agent')).length, 4);
  await fleet.stop(60_000);
});
