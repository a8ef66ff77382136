import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ResumableTunnel, TunnelInfo } from '@isthmus/tunnel';
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
    rttTo: () => undefined,
    failureOf: () => undefined,
  };
  const sessions = () => [
    aSession('still', { hubId: 'stays' }),
    { ...aSession('itself', { hubId: 'stays' }), draining: true, drainingSince: 7 },
    aSession('with its hub', { hubId: 'leaves' }),
  ];
  await using client = await asking({
    plane,
    sessions,
    tunnels: () => new Set(['still', 'itself', 'still'].map(tunnel)),
  });
  const listed = (await client.admin.listSessions({})).sessions;
  assert.deepEqual(
    listed.map(({ sessionId, draining, drainingSinceMs, tunnels }) => [sessionId, draining, drainingSinceMs, tunnels]),
    [
      ['still', false, 0, 2],
      ['itself', true, 7, 1],
      ['with its hub', true, 0, 0],
    ],
  );
});

test('a tunnel that outlives its hub is listed at the session that carries it now, with what it keeps', async () => {
  const began = tunnel('began');
  const { dial, agentId } = began;
  const resumable: ResumableTunnel = {
    dial,
    agentId,
    sessionId: 'now',
    hubId: 'h2',
    attached: false,
    moves: 2,
    kept: 7,
  };
  const moved: TunnelInfo = { ...began, role: 'gateway', sessionId: 'now', hubId: 'h2', resumable };
  await using client = await asking({ tunnels: () => new Set([began, moved]) });
  const { tunnels } = await client.admin.listTunnels({});
  assert.deepEqual(
    tunnels.map(({ sessionId, hubId, resume }) => [sessionId, hubId, resume]),
    [
      ['began', 'h', undefined],
      ['now', 'h2', { attached: false, moves: 2, keptBytes: 7 }],
    ],
  );
  const through = await client.admin.listTunnels({ sessionId: 'now' });
  assert.equal(through.tunnels.length, 1);
});
