import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TunnelInfo } from '@isthmus/tunnel';
import { aSession, asking } from '../testing/backend.ts';

function tunnel(sessionId: string): TunnelInfo {
  const signal = new AbortController().signal;
  const dial = { id: 'd', tenant: 'default', destination: { host: 'x', port: 1 }, deadline: 0, signal };
  return { role: 'hub', dial, agentId: 'a', sessionId, hubId: 'h', since: 1, up: 0, down: 0 };
}

test('a session is listed with its tunnels, and as draining if it or its hub drains', async () => {
  const hub = { incarnation: 1, peerAddress: '', agentAddress: '', zone: '' };
  const hubs = ['stays', 'leaves'].map((hubId) => ({ ...hub, hubId, draining: hubId === 'leaves' }));
  const plane = {
    registry: { synced: true, up: true, detail: '' },
    lastMembers: () => [],
    members: async () => [],
    hubs: () => hubs,
    linkTo: () => 'none' as const,
  };
  const sessions = () => [
    aSession('still', { hubId: 'stays' }),
    { ...aSession('itself', { hubId: 'stays' }), draining: true },
    aSession('with its hub', { hubId: 'leaves' }),
  ];
  await using client = await asking({
    plane,
    sessions,
    tunnels: () => new Set(['still', 'itself', 'still'].map(tunnel)),
  });
  const listed = (await client.admin.listSessions({})).sessions;
  assert.deepEqual(
    listed.map(({ sessionId, draining, tunnels }) => [sessionId, draining, tunnels]),
    [
      ['still', false, 2],
      ['itself', true, 1],
      ['with its hub', true, 0],
    ],
  );
});
