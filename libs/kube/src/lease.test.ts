import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { isLeaseValid, type Lease, labelSelector, leasePath, microTime } from './lease.ts';

const NOW = Date.parse('2026-01-02T03:04:05.678Z');

function lease(spec: NonNullable<Lease['spec']>): Lease {
  return { metadata: { name: 'a' }, spec };
}

describe('a lease', () => {
  it('is valid until its duration has passed since the renewal', () => {
    const renewed = lease({ renewTime: microTime(NOW), acquireTime: microTime(0), leaseDurationSeconds: 30 });
    assert.equal(isLeaseValid(renewed, NOW + 29_999), true);
    assert.equal(isLeaseValid(renewed, NOW + 30_000), false);
  });

  it('counts from its acquisition if it was never renewed', () => {
    const acquired = lease({ acquireTime: microTime(NOW), leaseDurationSeconds: 30 });
    assert.equal(isLeaseValid(acquired, NOW + 1), true);
  });

  it('is invalid without times, without a duration, or without a spec', () => {
    assert.equal(isLeaseValid(lease({ leaseDurationSeconds: 30 }), NOW), false);
    assert.equal(isLeaseValid(lease({ renewTime: microTime(NOW) }), NOW), false);
    assert.equal(isLeaseValid({ metadata: { name: 'a' } }, NOW), false);
  });

  it("writes times with six digits, which the API requires, and reads Go's times", () => {
    assert.equal(microTime(NOW), '2026-01-02T03:04:05.678000Z');
    const go = lease({ renewTime: '2026-01-02T03:04:05.678901Z', leaseDurationSeconds: 1 });
    assert.equal(isLeaseValid(go, NOW + 999), true);
  });

  it('has a path with escaped names', () => {
    assert.equal(leasePath('a/b', 'c d'), '/apis/coordination.k8s.io/v1/namespaces/a%2Fb/leases/c%20d');
  });
});

describe('a selector', () => {
  it('selects exactly what has the labels', () => {
    assert.equal(labelSelector({ 'k8s-app': 'konnectivity-server', a: '' }), 'a=,k8s-app=konnectivity-server');
  });
});
