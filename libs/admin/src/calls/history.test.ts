import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DialRequest, planeEvents } from '@isthmus/tunnel';
import { asking } from '../testing/backend.ts';
import { Recent } from './recent.ts';

function dialOf(tenant: string): DialRequest {
  const { signal } = new AbortController();
  return { id: 'd', tenant, destination: { host: 'h', port: 1 }, deadline: 0, signal };
}

test('the last hour has the dials of the first role, sessions and tunnels, and refusals', async () => {
  const events = planeEvents();
  const recent = new Recent(events);
  const stop = recent.follow(() => ({ sessions: 4, tunnels: 2 }));
  events.emit('dial:end', 'gateway', dialOf('acme'), { ms: 10 });
  events.emit('dial:end', 'hub', dialOf('acme'), { ms: 10 });
  events.emit('dial:end', 'gateway', dialOf('beta'), { ms: 10 });
  events.emit('refused', 'agents', '10.0.0.1:4001', new Error('certificate has expired'));
  await using client = await asking({ recent });
  const all = await client.admin.getHistory({});
  assert.equal(all.slotMs, 10_000);
  assert.equal(
    all.slots.reduce((sum, { dials }) => sum + dials, 0),
    2,
  );
  assert.deepEqual([all.slots[0]?.sessions, all.slots[0]?.tunnels], [4, 2]);
  assert.deepEqual(
    all.refusals.map(({ where, reason }) => [where, reason]),
    [['agents', 'certificate has expired']],
  );
  const acme = await client.admin.getHistory({ tenant: 'acme' });
  // Another minute may have begun.
  const dials = acme.slots.map((slot) => slot.dials).filter((count) => count > 0);
  assert.deepEqual([acme.slotMs, dials], [60_000, [1]]);
  assert.deepEqual((await client.admin.getHistory({ tenant: 'none' })).slots, []);
  stop();
});

test('an hour of their own is kept for a hundred tenants', () => {
  const events = planeEvents();
  const recent = new Recent(events);
  for (let n = 0; n < 150; n++) events.emit('dial:end', 'gateway', dialOf(`t${n}`), { ms: 1 });
  const kept = Array.from({ length: 150 }, (_, n) => recent.slots(`t${n}`).slots.length);
  assert.equal(kept.filter((length) => length > 0).length, 100);
  assert.deepEqual([kept[49], kept[50]], [0, 1]);
});
