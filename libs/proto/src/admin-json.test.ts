import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AdminJson } from './admin-json.ts';

const json = new AdminJson();

test('a request is read from ProtoJSON, with what it leaves out', () => {
  assert.deepEqual(json.request('kick', { dialId: 'd1', reason: 'old' }), {
    target: { $case: 'dialId', value: 'd1' },
    reason: 'old',
  });
  const watched = json.request('watchDials', { role: 'ROLE_GATEWAY', slowerThanMs: 5, recent: 0 });
  assert.deepEqual([watched.role, watched.slowerThanMs, watched.recent, watched.onlyFailed], [1, 5, 0, false]);
  assert.equal(json.request('watchDials', { role: 1 }).role, 1);
});

test('a request with a wrong field is refused, and the field is named', () => {
  assert.throws(() => json.request('kick', { reason: 5 }), /reason/);
  assert.throws(() => json.request('kick', { reson: '' }), /reson/);
  assert.throws(() => json.request('kick', { dialId: 'a', sessionId: 'b' }), /oneof/);
  for (const wrong of [null, [], 'x', 5]) assert.throws(() => json.request('kick', wrong), /KickRequest/);
});
