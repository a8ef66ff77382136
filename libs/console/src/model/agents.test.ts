import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aHub, aSession } from '@isthmus/findings/testing';
import { agentsOf, groupsOf } from './agents.ts';

const HUBS = [aHub('h1', { zone: 'a' }), aHub('h2', { zone: 'b' })];

function statesOf(...sessions: ReturnType<typeof aSession>[]) {
  return agentsOf(sessions, HUBS).map(({ id, state }) => `${id} ${state}`);
}

test('an agent is as well as its sessions', () => {
  const both = (given: Parameters<typeof aSession>[0]) => [
    aSession({ ...given, hubId: 'h1' }),
    aSession({ ...given, hubId: 'h2' }),
  ];
  assert.deepEqual(statesOf(...both({})), ['a well']);
  assert.deepEqual(statesOf(aSession()), ['a thin']);
  assert.deepEqual(statesOf(...both({ draining: true })), ['a draining']);
  assert.deepEqual(statesOf(...both({ quarantined: true })), ['a quarantined']);
  assert.deepEqual(
    agentsOf([aSession()], [aHub('h1')]).map(({ state }) => state),
    ['well'],
  );
  assert.deepEqual(
    agentsOf([aSession()], [aHub('h1'), aHub('h2', { draining: true })]).map(({ state }) => state),
    ['well'],
  );
});

test('agents of two tenants with one id are two, and tunnels are added', () => {
  const sessions = [
    aSession({ tenant: 'acme', tunnels: 2 }),
    aSession({ tenant: 'beta' }),
    aSession({ tenant: 'acme', hubId: 'h2', tunnels: 3 }),
  ];
  const agents = agentsOf(sessions, HUBS);
  assert.deepEqual(
    agents.map(({ tenant, zones, tunnels }) => [tenant, zones, tunnels]),
    [
      ['acme', 'a + b', 5],
      ['beta', 'a', 0],
    ],
  );
});

test('10,000 agents are grouped by tenant and zone, with what is not well first', () => {
  const sessions = Array.from({ length: 10_000 }, (_, n) => {
    return ['h1', 'h2'].map((hubId) => {
      return aSession({ tenant: `t${n % 10}`, agentId: `a${n}`, hubId, quarantined: n === 777 });
    });
  }).flat();
  const groups = groupsOf(agentsOf(sessions, HUBS));
  assert.equal(groups.length, 10);
  const [first] = groups;
  assert.deepEqual([first?.tenant, first?.agents[0]?.id, first?.counts.quarantined], ['t7', 'a777', 1]);
  assert.ok(groups.every(({ agents }) => agents.length === 1000));
});
