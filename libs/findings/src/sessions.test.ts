import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sessionsIn, stateOfSessions } from './sessions.ts';
import { aSession } from './testing.ts';

const at = (hubId: string, given: Parameters<typeof aSession>[0] = {}) => aSession({ hubId, ...given });

test("a session is as its hub says, and a gateway's copy of one that the hub has ended does not count", () => {
  const h1 = { id: 'h1', sessions: [at('h1', { suspected: true, draining: true })] };
  const g1 = { id: 'g1', sessions: [at('h1', { draining: true }), at('h1', { agentId: 'ended', draining: true })] };
  for (const told of [
    [g1, h1],
    [h1, g1],
  ]) {
    const sessions = sessionsIn(told);
    assert.deepEqual(
      sessions.map(({ agentId }) => agentId),
      ['a'],
    );
    assert.equal(stateOfSessions(sessions), 'suspect');
  }
});

test('a session of a hub that does not answer is as a gateway says that reaches it', () => {
  const lost = { id: 'g1', sessions: [at('h2', { suspected: true })] };
  const reaching = { id: 'g2', sessions: [at('h2')] };
  const h1 = { id: 'h1', sessions: [] };
  assert.equal(stateOfSessions(sessionsIn([lost, h1])), 'suspect');
  assert.equal(stateOfSessions(sessionsIn([lost, reaching, h1])), 'ready');
  assert.equal(stateOfSessions(sessionsIn([reaching, lost, h1])), 'ready');
});
