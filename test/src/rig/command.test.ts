import assert from 'node:assert/strict';
import test from 'node:test';
import { conclude } from './command.ts';

test('a run says how it ended, and does not hold if nothing has run', (t) => {
  let said = '';
  t.mock.method(process.stdout, 'write', (text: string) => {
    said += text;
    return true;
  });
  const statusOf = (...counts: Parameters<typeof conclude>) => {
    conclude(...counts);
    return process.exitCode;
  };
  const statuses = [statusOf(0, 0), statusOf(2, 1), statusOf(0, 0, 1), statusOf(2, 0)];
  process.exitCode = 0;
  t.mock.restoreAll();
  assert.deepEqual(statuses, [1, 1, 0, 0]);
  assert.equal(said, '0 passed, 0 failed\n2 passed, 1 failed\n0 passed, 0 failed, 1 skipped\n2 passed, 0 failed\n');
});
