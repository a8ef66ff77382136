import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countSessions, registryCheck, sessionsCheck } from './checks.ts';

test('a registry that has answered once never makes a program unready, and the check shows its age', () => {
  const now = 10_000;
  const cases: [Parameters<typeof registryCheck>[0], boolean, string][] = [
    [{ synced: false, up: false, detail: 'ECONNREFUSED' }, false, 'no copy of the registry yet: ECONNREFUSED'],
    [{ synced: true, up: true, detail: 'following' }, true, 'following'],
    [{ synced: true, up: true, detail: 'following', lastAnswerAt: 9_600 }, true, 'answered 0.4 s ago'],
    [
      { synced: true, up: false, detail: 'ECONNREFUSED', lastAnswerAt: 1_000 },
      true,
      'answered 9.0 s ago, dials use its copy: ECONNREFUSED',
    ],
  ];
  for (const [state, ok, detail] of cases) {
    assert.deepEqual(registryCheck(state, now), { name: 'registry', ok, detail });
  }
});

test('sessions of another tenant are counted, but do not make a gateway ready', () => {
  const cases: [Record<string, number>, boolean, string, quarantined?: number][] = [
    [{}, false, 'no agent has a session'],
    [{ other: 1 }, false, 'no agent has a session (of other tenants: 1)'],
    [{ default: 3 }, true, 'sessions: 3 (default: 3)'],
    [{ default: 3, other: 5 }, true, 'sessions: 8 (other: 5, default: 3)'],
    [{ default: 3 }, true, 'sessions: 3 (default: 3), 2 in quarantine', 2],
  ];
  for (const [counts, ok, detail, quarantinedSessions = 0] of cases) {
    const sessionsOf = (tenant: string) => counts[tenant] ?? 0;
    const directory = { sessionsOf, tenants: () => Object.entries(counts), quarantinedSessions };
    assert.deepEqual({ ...sessionsCheck(directory, 'default') }, { name: 'sessions', ok, detail });
  }
});

test('of many tenants, those with the most sessions are listed, and the rest are summed up', () => {
  const tenants = Array.from({ length: 25 }, (_, n) => [`t${n}`, n + 1] as const);
  const listed = tenants.slice(5).reverse();
  const text = listed.map(([tenant, sessions]) => `${tenant}: ${sessions}`).join(', ');
  assert.equal(countSessions(tenants), `sessions: 325 (${text}, 5 others: 15)`);
  assert.equal(countSessions([['a: 1\n[+]', 2]]), 'sessions: 2 ("a: 1\\n[+]": 2)');
});

test('a probe that only asks whether there are sessions does not count them per tenant', () => {
  const tenants = () => assert.fail('counted');
  assert.equal(sessionsCheck({ sessionsOf: () => 1, tenants, quarantinedSessions: 0 }, 'default').ok, true);
});
