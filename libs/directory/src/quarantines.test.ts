import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MAX_QUARANTINED, Quarantines } from './quarantines.ts';

test('only a bounded number of released agents is remembered, the latest ones', () => {
  const all = new Quarantines();
  all.apply({ tenant: 't', agentId: 'in', reason: '', version: 0 });
  for (let n = 1; n <= MAX_QUARANTINED + 5; n++) all.apply({ tenant: 't', agentId: `out-${n}`, version: n });
  assert.equal(all.all().length, MAX_QUARANTINED + 1);
  assert.deepEqual([all.size, all.inForce().length], [1, 1]);
  assert.equal(all.last({ tenant: 't', agentId: 'out-5' }), undefined);
  assert.equal(all.last({ tenant: 't', agentId: 'out-6' })?.version, 6);
});

test('names that are equal once joined are not confused', () => {
  const all = new Quarantines();
  all.apply({ tenant: 'a', agentId: 'b c', reason: '', version: 1 });
  assert.equal(all.of({ tenant: 'a b', agentId: 'c' }), undefined);
  assert.ok(all.of({ tenant: 'a', agentId: 'b c' }));
});
