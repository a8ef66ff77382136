import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { planeEvents } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import { aSession, asking } from '../testing/backend.ts';
import { RecentEvents } from './recent-events.ts';

test('what came, drained and went is listed, the oldest first, with where and why', async () => {
  const events = planeEvents();
  await using client = await asking({ events: new RecentEvents(events) });
  const session = aSession('s');
  events.emit('session:open', session);
  events.emit('session:drain', session);
  events.emit('session:close', session, 'reset');
  events.emit('peer:open', 'h2', '10.0.0.2:8097');
  events.emit('peer:close', 'h2', '10.0.0.2:8097', 'silent');
  events.emit('registry', 'down', 'READONLY');
  const { Event_Type: type, Role } = adminApi;
  const agent = { role: Role.ROLE_AGENT, tenant: 'default', id: 'a', hubId: 'h', address: '10.0.0.1:5000', reason: '' };
  const hub = { role: Role.ROLE_HUB, tenant: '', id: 'h2', hubId: '', address: '10.0.0.2:8097', reason: '' };
  const told = (await client.admin.listEvents({})).events;
  assert.deepEqual(
    told.map(({ atMs, ...event }) => event),
    [
      { type: type.TYPE_CAME, ...agent },
      { type: type.TYPE_DRAINS, ...agent },
      { type: type.TYPE_WENT, ...agent, reason: 'reset' },
      { type: type.TYPE_CAME, ...hub },
      { type: type.TYPE_WENT, ...hub, reason: 'silent' },
      { type: type.TYPE_REGISTRY_DOWN, ...hub, role: Role.ROLE_UNSPECIFIED, id: '', address: '', reason: 'READONLY' },
    ],
  );
  assert.ok(told.every(({ atMs }) => Math.abs(Date.now() - atMs) < 60_000));
});

test('an agent that flaps pushes out no others, and many agents leave the last thousand, for an hour', () => {
  const events = planeEvents();
  const recent = new RecentEvents(events);
  events.emit('session:open', aSession('first', { agentId: 'first' }));
  for (let n = 0; n < 2 * ADMIN.events; n++) events.emit('session:close', aSession('s'), `${n}`);
  const kept = recent.list();
  assert.equal(kept.length, 1 + ADMIN.eventsOfOne);
  assert.deepEqual([kept[0]?.id, kept.at(-1)?.reason], ['first', `${2 * ADMIN.events - 1}`]);
  for (let n = 0; n < 2 * ADMIN.events; n++) events.emit('session:open', aSession('s', { agentId: `a${n}` }));
  assert.equal(recent.list().length, ADMIN.events);
  assert.equal(recent.list()[0]?.id, `a${ADMIN.events}`);
  assert.deepEqual(recent.list(Date.now() + 2 * ADMIN.historyMs), []);
});

test("one tenant's agents push out no other tenant's", () => {
  const events = planeEvents();
  const recent = new RecentEvents(events);
  for (let n = 0; n < 10; n++) events.emit('session:open', aSession('s', { tenant: 'acme', agentId: `a${n}` }));
  for (let n = 0; n < 2 * ADMIN.events; n++)
    events.emit('session:open', aSession('s', { tenant: 'beta', agentId: `b${n}` }));
  const kept = recent.list();
  assert.deepEqual([kept.length, kept.filter(({ tenant }) => tenant === 'acme').length], [ADMIN.events, 10]);
});

test('a program that keeps none says whom to ask', async () => {
  await using client = await asking();
  await assert.rejects(client.admin.listEvents({}), /keeps no events: ask a gateway or hub/);
});
