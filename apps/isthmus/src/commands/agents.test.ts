import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { styleOf } from '../output.ts';
import { sessionViews } from '../plane/evidence.ts';
import { agentsOf, agentsText } from './agents.ts';

const SECOND = 1000;

/** A session whose agent has been draining for so long, in milliseconds, or is suspect. */
function session(agentId: string, draining: boolean, forMs?: number, suspected = false) {
  // By the hub's clock, whatever this machine's says.
  const nowMs = 1_000_000_000;
  const since = forMs === undefined ? 0 : nowMs - forMs;
  const told = { agentId, tenant: 'default', hubId: 'h', draining, drainingSinceMs: since, suspected };
  return { ...adminApi.Session.fromPartial(told), nowMs };
}

test('an agent whose sessions all drain is shown with how long it has been draining', () => {
  const sessions = [
    session('leaves', true, 300 * SECOND),
    session('leaves', true, 200 * SECOND),
    session('moves', true, SECOND),
    session('moves', false),
    session('with-its-hub', true),
  ];
  const agents = agentsOf(sessionViews(sessions));
  const lines = agentsText(agents, styleOf(false)).split('\n');
  const line = (agent: string) => lines.find((each) => each.startsWith(agent)) ?? '';
  assert.match(line('leaves'), / draining for 5m/);
  assert.match(line('moves'), / ready /);
  assert.match(line('with-its-hub'), / draining {2}/);
});

test('an agent that its hubs hear nothing of is suspect, and not ready', () => {
  const silent = (agentId: string) => session(agentId, false, undefined, true);
  const sessions = [silent('stopped'), silent('stopped'), silent('heard'), session('heard', false)];
  const states = agentsOf(sessionViews(sessions)).map(({ agent, state }) => [agent, state]);
  assert.deepEqual(states, [
    ['heard', 'ready'],
    ['stopped', 'suspect'],
  ]);
});
