import assert from 'node:assert/strict';
import { test } from 'node:test';
import { countSessions, registryCheck, sessionsCheck } from './checks.ts';

test('a registry that has answered once is no reason to be unready, and its age is told', () => {
  const now = 10_000;
  const cases: [Parameters<typeof registryCheck>[0], boolean, string][] = [
    [{ synced: false, up: false, detail: 'ECONNREFUSED' }, false, 'no copy of the registry yet: ECONNREFUSED'],
    [{ synced: true, up: true, detail: 'following' }, true, 'following'],
    [{ synced: true, up: true, detail: 'following', lastAnswerAt: 9_600 }, true, 'answered 0.4 s ago'],
    [
      { synced: true, up: false, detail: 'ECONNREFUSED', lastAnswerAt: 1_000 },
      true,
      'answered 9.0 s ago, dials go by its copy: ECONNREFUSED',
    ],
  ];
  for (const [state, ok, detail] of cases) {
    assert.deepEqual(registryCheck(state, now), { name: 'registry', ok, detail });
  }
});

test('sessions of another tenant are counted, and are of no use', () => {
  const session = (tenant: string, agentId: string) => ({ tenant, agentId });
  const own = [session('default', 'a1'), session('default', 'a1'), session('default', 'a2')];
  const other = session('other', 'a1');
  const cases: [readonly ReturnType<typeof session>[], boolean, string][] = [
    [[], false, 'no agent has a session'],
    [[other], false, 'no agent has a session (of other tenants: 1)'],
    [own, true, 'sessions: 3, agents: 2'],
    [[...own, other], true, 'sessions: 3, agents: 2 (of other tenants: 1)'],
  ];
  for (const [sessions, ok, detail] of cases) {
    assert.deepEqual(sessionsCheck(sessions, 'default'), { name: 'sessions', ok, detail });
  }
  assert.equal(countSessions([...own, other]), 'sessions: 4, agents: 3');
});
