import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { RateLimit } from './rate.ts';

describe('a rate limit', () => {
  it('lets a burst through at once, then one call per interval', () => {
    const limit = new RateLimit(5, 3, () => 1000);
    assert.deepEqual(
      Array.from({ length: 5 }, () => limit.reserve(10_000)),
      [0, 0, 0, 200, 400],
    );
  });

  it('refills while nobody calls, up to the burst and not beyond', () => {
    let now = 0;
    const limit = new RateLimit(5, 2, () => now);
    for (let call = 0; call < 3; call++) limit.reserve(10_000);
    now = 60_000;
    assert.deepEqual([limit.reserve(0), limit.reserve(0), limit.reserve(10_000)], [0, 0, 200]);
  });

  it('reserves no place for a call that would not wait for it', () => {
    const limit = new RateLimit(1, 1, () => 0);
    limit.reserve(0);
    assert.equal(limit.reserve(999), 1000);
    assert.equal(limit.reserve(1000), 1000);
    assert.equal(limit.reserve(2000), 2000);
  });
});
