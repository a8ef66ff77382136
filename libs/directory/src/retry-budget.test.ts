import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RetryBudget } from './retry-budget.ts';

function spendAll(budget: RetryBudget, tenant: string): number {
  let count = 0;
  while (budget.spend(tenant)) count++;
  return count;
}

test('a tenant that has used up its retries takes none of another’s, and all together have a ceiling', () => {
  const budget = new RetryBudget();
  const tenants = ['a', 'b', 'c', 'd', 'e', 'f'];
  assert.deepEqual(
    tenants.map((tenant) => spendAll(budget, tenant)),
    [2000, 2000, 2000, 2000, 2000, 0],
  );
  assert.ok(tenants.every((tenant) => budget.spent(tenant)));
});

test('every five dials of a tenant give it a retry, and no more than it had at first', () => {
  const budget = new RetryBudget();
  spendAll(budget, 'a');
  for (let dials = 0; dials < 51; dials++) budget.earn('a');
  assert.equal(spendAll(budget, 'a'), 10);
  for (let dials = 0; dials < 20_000; dials++) budget.earn('a');
  assert.equal(spendAll(budget, 'a'), 2000);
});
