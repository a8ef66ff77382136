import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SharedBudget } from './shared-budget.ts';

test('one group may use the whole budget, and once there are two none can take all', () => {
  const alone = new SharedBudget(1024);
  assert.equal(alone.take(1024, 'a'), true);
  const budget = new SharedBudget(1024);
  const most = (group: string) => {
    let taken = 0;
    while (budget.take(16, group)) taken += 16;
    return taken;
  };
  assert.equal(budget.take(16, 'b'), true);
  budget.give(16, 'b');
  assert.deepEqual(['a', 'b', 'c', 'a'].map(most), [512, 256, 128, 0]);
  budget.give(512, 'a');
  assert.equal(most('c'), 256, 'what is given back is for all');
});
