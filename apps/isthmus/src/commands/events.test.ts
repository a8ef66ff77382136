import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { styleOf } from '../output.ts';
import type { Member } from '../plane/member.ts';
import { EVENTS, eventsOf, eventsText, happenedAt, refusedAt } from './events.ts';

const NOW = Date.parse('2026-05-01T12:00:00Z');
type Seen = Parameters<typeof eventsOf>[0][number];

function seen(type: Seen['type'], agoMs: number, more: Partial<Seen> = {}): Seen {
  return {
    type,
    atMs: NOW - agoMs,
    agoMs,
    kind: 'agent',
    name: 'a',
    tenant: 't',
    hub: 'hub-1',
    detail: 'session with hub-1',
    seenBy: 'hub-1',
    ...more,
  };
}

describe('events', () => {
  it('are those of the last hour, each once, the newest last', () => {
    const events = eventsOf([
      seen('went', 10_000, { detail: 'session with hub-1: reset' }),
      // The gateway's loss of the same agent.
      seen('went', 9_500, { detail: 'session with hub-1: without a word', seenBy: 'gw-1' }),
      seen('came', 60_000),
      seen('came', 59_900, { detail: 'session with hub-2', hub: 'hub-2' }),
      seen('came', 3_700_000),
      seen('went', 8_000, { name: 'b', tenant: 'u' }),
      seen('went', Number.NaN),
    ]);
    assert.deepEqual(
      events.map(({ type, name, detail, agoMs }) => `${agoMs} ${type} ${name} ${detail}`),
      [
        '60000 came a session with hub-1',
        '59900 came a session with hub-2',
        '10000 went a session with hub-1: reset',
        '8000 went b session with hub-1',
      ],
    );
    assert.equal(new Set(events.map(({ event }) => event)).size, events.length);
    assert.match(
      eventsText(events, styleOf(false)),
      /^LAST SEEN {3}TYPE {3}OBJECT {4}TENANT .*\n1m +came +agent\/a +t +session with hub-1/,
    );
    assert.match(eventsText([], styleOf(false)), /^Nothing came/);
  });
});

test('a refusal that is reported again is the same event, and no event ever goes', () => {
  const refusal = (count: number, remote: string, agoMs: number) =>
    adminApi.Refusal.fromPartial({
      where: 'agents',
      count,
      remote,
      firstMs: NOW - 90_000,
      lastMs: NOW - agoMs,
    });
  const told = (refused: adminApi.Refusal) =>
    eventsOf(refusedAt({ member: { id: 'hub-1' } as Member, value: { refusals: [refused], nowMs: NOW } }));
  const [before, after] = [told(refusal(1, '10.0.0.7:1', 90_000)), told(refusal(2, '10.0.0.7:2', 30_000))];
  assert.deepEqual([before[0]?.name, after[0]?.name, after[0]?.agoMs], ['10.0.0.7:1', '10.0.0.7:2', 30_000]);
  assert.equal(after[0]?.event, before[0]?.event);
  assert.equal(EVENTS.past, true);
});

test('what a member kept is told with where and why, and what a later version keeps is left out', () => {
  const { Event_Type: type, Role } = adminApi;
  const agent = { role: Role.ROLE_AGENT, tenant: 't', id: 'a', hubId: 'hub-1', address: '10.0.0.7:1' };
  const hub = { role: Role.ROLE_HUB, id: 'hub-2', address: '10.0.0.2:8097', reason: 'silent' };
  const gateway = { role: Role.ROLE_GATEWAY, id: 'gw-2', address: '10.0.0.3:8095', reason: 'silent for 9 s' };
  const kept = [
    { type: type.TYPE_CAME, role: Role.ROLE_GATEWAY, id: 'gw-1', reason: 'started' },
    { type: type.TYPE_CAME, ...agent },
    { type: type.TYPE_DRAINS, ...agent },
    { type: type.TYPE_WENT, ...agent, address: '', reason: 'reset' },
    { type: type.TYPE_WENT, ...hub },
    { type: type.TYPE_WENT, ...gateway },
    { type: type.TYPE_REGISTRY_DOWN, reason: 'READONLY' },
    { type: 99 as never, ...agent },
  ];
  const events = kept.map((event, index) => adminApi.Event.fromPartial({ ...event, atMs: NOW - 60_000 + index }));
  const told = eventsOf(happenedAt({ member: { id: 'gw-1' } as Member, value: { events, nowMs: NOW } }));
  assert.deepEqual(
    told.map(({ type, kind, name, tenant, detail }) => [type, kind, name, tenant, detail].join(', ')),
    [
      'came, gateway, gw-1, , started',
      'came, agent, a, t, session with hub-1 from 10.0.0.7:1',
      'drains, agent, a, t, session with hub-1 from 10.0.0.7:1',
      'went, agent, a, t, session with hub-1: reset',
      'went, hub, hub-2, , link to 10.0.0.2:8097: silent',
      'went, gateway, gw-2, , admin port at 10.0.0.3:8095: silent for 9 s',
      'registry, registry, registry, , down: READONLY',
    ],
  );
});

test('at 80 columns no word of the reason is lost, and no line is wider', () => {
  const reason = `the agent at ${'x'.repeat(70)}: certificate has expired, as its clock says`;
  const events = eventsOf([seen('refused', 1000, { kind: 'peer', name: '10.0.0.7:40312', detail: reason })]);
  const text = eventsText(events, styleOf(false, { columns: 80, wide: false }));
  const lines = text.split('\n');
  assert.deepEqual(
    lines.filter((line) => line.length > 80),
    [],
  );
  const from = lines[0]?.indexOf('DETAIL') ?? 0;
  const detail = lines
    .slice(1)
    .map((line) => line.slice(from))
    .join('')
    .replaceAll(' ', '');
  assert.equal(detail, reason.replaceAll(' ', ''));
});
