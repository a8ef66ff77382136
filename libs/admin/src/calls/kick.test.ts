import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SessionInfo } from '@isthmus/tunnel';
import { aSession, asking } from '../testing/backend.ts';
import type { KickPart } from './lists.ts';

/** A hub with these sessions, and a list of what was ended there. */
function hubWith(...sessions: SessionInfo[]) {
  const ended: [string, string][] = [];
  const kick: KickPart = {
    tunnel(dialId, { message }) {
      if (dialId !== 'known') return 0;
      ended.push([dialId, message]);
      return 1;
    },
    sessions(which, { message }) {
      const found = sessions.filter(which);
      for (const { sessionId } of found) ended.push([sessionId, message]);
      return found;
    },
  };
  return { ended, backend: { kick, sessions: () => sessions } };
}

const agentA = (sessionId: string) => aSession(sessionId);

test('a kick ends a tunnel, a session or all sessions of an agent, and gives the reason', async () => {
  const { ended, backend } = hubWith(agentA('s1'), agentA('s2'), aSession('s3', { tenant: 'acme' }));
  await using client = await asking(backend);
  const { kick } = client.admin;
  const target = (value: Parameters<typeof kick>[0]['target'], reason = '') =>
    kick({ ...(value && { target: value }), reason });
  assert.deepEqual(await target({ $case: 'dialId', value: 'known' }, 'hangs'), { sessionIds: [], tunnels: 1 });
  assert.deepEqual((await target({ $case: 'sessionId', value: 's2' })).sessionIds, ['s2']);
  assert.deepEqual((await target({ $case: 'agent', value: { agentId: 'a' } })).sessionIds, ['s1', 's2']);
  assert.deepEqual((await target({ $case: 'agent', value: { tenant: 'acme', agentId: 'a' } })).sessionIds, ['s3']);
  assert.deepEqual(ended[0], ['known', 'ended by an operator: hangs']);
  assert.deepEqual(ended[1], ['s2', 'ended by an operator']);
});

test('a kick of something that is not here says where to look', async () => {
  const { backend } = hubWith(agentA('s1'));
  await using hub = await asking(backend);
  await using gateway = await asking({ sessions: () => [agentA('s1')] });
  const session = (value: string) => ({ target: { $case: 'sessionId' as const, value } });
  await assert.rejects(hub.admin.kick(session('s9')), /NOT_FOUND: no session s9 here: ask the hub that holds it$/);
  await assert.rejects(hub.admin.kick(session('')), /INVALID_ARGUMENT: session_id is empty/);
  await assert.rejects(hub.admin.kick({}), /INVALID_ARGUMENT: no target: set session_id, agent or dial_id/);
  const dialId = { target: { $case: 'dialId' as const, value: 'x' } };
  await assert.rejects(hub.admin.kick(dialId), /NOT_FOUND: no tunnel of dial x runs here: ListTunnels says which do/);
  const long = { ...dialId, reason: 'x'.repeat(501) };
  await assert.rejects(hub.admin.kick(long), /INVALID_ARGUMENT: reason has 501 characters: want at most 500/);
  const elsewhere = /UNIMPLEMENTED: this program holds no sessions: ask the hub that does: h$/;
  await assert.rejects(gateway.admin.kick(session('s1')), elsewhere);
});
