import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type Lease, labelSelector, leasePath, microTime, SeenLeases } from './lease.ts';

const NOW = Date.parse('2026-01-02T03:04:05.678Z');

function lease(name: string, spec: NonNullable<Lease['spec']> = {}): Lease {
  return { metadata: { name }, spec: { leaseDurationSeconds: 30, ...spec } };
}

const renewed = (name: string, at: number) => lease(name, { renewTime: microTime(at), acquireTime: microTime(0) });

/** Leases, and the steady clock by which they are seen. */
function watched() {
  const clock = { now: 5_000 };
  return { clock, seen: new SeenLeases(() => clock.now) };
}

describe('a lease', () => {
  it('is live until its duration has passed since its renewal was seen, whatever the clock of its holder says', () => {
    for (const ahead of [0, 60_000, -60_000, 1e9]) {
      const { clock, seen } = watched();
      seen.list([renewed('a', NOW + ahead)], true);
      clock.now += 29_999;
      assert.equal(seen.isLive('a'), true);
      clock.now += 1;
      assert.equal(seen.isLive('a'), false);
      seen.see(renewed('a', NOW + ahead + 31_000));
      assert.equal(seen.isLive('a'), true);
      // Written again without being renewed, or listed again.
      clock.now += 20_000;
      seen.see(renewed('a', NOW + ahead + 31_000));
      seen.list([renewed('a', NOW + ahead + 31_000)], true);
      clock.now += 10_000;
      assert.equal(seen.isLive('a'), false);
    }
  });

  it('counts, when it is first seen, as renewed as long before the latest one as the times in them say', () => {
    const { clock, seen } = watched();
    seen.list([renewed('new', NOW), renewed('older', NOW - 20_000), renewed('dead', NOW - 30_000)], true);
    assert.deepEqual(
      ['new', 'older', 'dead'].map((name) => seen.isLive(name)),
      [true, true, false],
    );
    clock.now += 10_000;
    assert.equal(seen.live, 1);
    seen.see(renewed('dead', NOW - 20_000));
    assert.equal(seen.isLive('dead'), true, 'its clock is behind, and it was seen to renew');
  });

  it('counts from its acquisition if it was never renewed, and as dead without times, a duration or a spec', () => {
    const { seen } = watched();
    const incomplete = [lease('timeless'), lease('endless', { renewTime: microTime(NOW), leaseDurationSeconds: 0 })];
    seen.list(
      [lease('acquired', { acquireTime: microTime(NOW) }), ...incomplete, { metadata: { name: 'bare' } }],
      false,
    );
    assert.deepEqual(
      ['acquired', 'timeless', 'endless', 'bare', 'absent'].map((name) => seen.isLive(name)),
      [true, false, false, false, false],
    );
  });

  it('is forgotten when it is deleted, or listed no more', () => {
    const { seen } = watched();
    seen.list([renewed('a', NOW), renewed('b', NOW)], true);
    seen.delete('a');
    assert.equal(seen.live, 1);
    seen.list([], true);
    assert.equal(seen.live, 0);
  });

  it('writes times with six digits, which the API requires', () => {
    assert.equal(microTime(NOW), '2026-01-02T03:04:05.678000Z');
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
