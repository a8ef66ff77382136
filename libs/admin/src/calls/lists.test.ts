import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HeldTunnel, Hold, ResumableTunnel, TunnelInfo } from '@isthmus/tunnel';
import { aSession, asking } from '../testing/backend.ts';

function tunnel(sessionId: string): TunnelInfo {
  const signal = new AbortController().signal;
  const dial = { id: 'd', tenant: 'default', destination: { host: 'x', port: 1 }, deadline: 0, signal };
  return { role: 'hub', dial, agentId: 'a', sessionId, hubId: 'h', since: 1, up: 0, down: 0 };
}

test('a session is listed with its tunnels, as draining if it or its hub drains, and as suspected if it is silent or its hub is lost', async () => {
  const hub = { incarnation: 1, peerAddress: '', agentAddress: '', zone: '' };
  const hubs = ['stays', 'leaves', 'lost'].map((hubId) => ({ ...hub, hubId, draining: hubId === 'leaves' }));
  const plane = {
    registry: { synced: true, up: true, detail: '' },
    lastMembers: () => [],
    members: async () => [],
    hubs: () => hubs,
    linkTo: ({ hubId }: { readonly hubId: string }) => (hubId === 'lost' ? ('down' as const) : ('up' as const)),
    rttTo: () => undefined,
    failureOf: () => undefined,
  };
  const sessions = () => [
    aSession('still', { hubId: 'stays' }),
    { ...aSession('itself', { hubId: 'stays' }), draining: true, drainingSince: 7 },
    aSession('with its hub', { hubId: 'leaves' }),
    { ...aSession('silent', { hubId: 'stays' }), suspected: true },
    aSession('unreached', { hubId: 'lost' }),
  ];
  await using client = await asking({
    plane,
    sessions,
    tunnels: () => new Set(['still', 'itself', 'still'].map(tunnel)),
  });
  const listed = (await client.admin.listSessions({})).sessions;
  assert.deepEqual(
    listed.map((each) => [each.sessionId, each.draining, each.drainingSinceMs, each.tunnels, each.suspected]),
    [
      ['still', false, 0, 2, false],
      ['itself', true, 7, 1, false],
      ['with its hub', true, 0, 0, false],
      ['silent', false, 0, 0, true],
      ['unreached', false, 0, 0, true],
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

test('isthmus hold is listed, with the state of the tunnels whose ends it has, also of those that nothing carries', async () => {
  const gatewayTunnel = (id: string, tenant: string, via: 'hold' | 'grpc'): TunnelInfo => {
    const { dial, ...rest } = tunnel('s');
    return { ...rest, role: 'gateway', dial: { ...dial, id, tenant, caller: { via, identity: 'api', remote: '' } } };
  };
  const tunnels = [
    gatewayTunnel('1', 'acme', 'hold'),
    gatewayTunnel('2', 'acme', 'grpc'),
    gatewayTunnel('3', 'beta', 'hold'),
  ];
  const held = (dialId: string, attached: boolean): HeldTunnel => {
    const to = { agentId: 'a', destination: { host: 'x', port: 1 } };
    return { dialId, ...to, since: 1, up: 2, down: 3, attached, moves: 4, kept: 5 };
  };
  const hold: Hold = {
    ...{ name: 'node-1', version: '1', tenant: 'acme', caller: 'api', remote: 'uds', since: 7 },
    tunnels: [held('1', true), held('2', true), held('3', true), held('4', false), held('5', true)],
  };
  await using client = await asking({ tunnels: () => new Set(tunnels), holds: async () => [hold] });
  const listed = (await client.admin.listTunnels({})).tunnels;
  assert.deepEqual(
    listed.map(({ dialId, tenant, resume }) => [dialId, tenant, resume]),
    [
      ['1', 'acme', { attached: true, moves: 4, keptBytes: 5 }],
      // Not of hold, and of another tenant: what it says of them counts nothing.
      ['2', 'acme', undefined],
      ['3', 'beta', undefined],
      ['4', 'acme', { attached: false, moves: 4, keptBytes: 5 }],
    ],
  );
  assert.deepEqual([listed[3]?.destination, listed[3]?.caller, listed[3]?.bytesDown], ['x:1', 'api', 3]);
  const { holds } = await client.admin.listMembers({});
  const { since: sinceMs, tunnels: _tunnels, ...who } = hold;
  assert.deepEqual(holds, [{ ...who, sinceMs, tunnels: 5 }]);
});
