import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { test } from 'node:test';
import type { HubRecord, Member } from '@isthmus/directory';
import { adminApi } from '@isthmus/proto/admin';
import { aSession, asking, aTunnel } from '../testing/backend.ts';
import type { PlanePart } from './members.ts';

const { ROLE_GATEWAY, ROLE_HUB } = adminApi.Role;
const { LINK_OWN, LINK_UP, LINK_DOWN } = adminApi.Hub_Link;

function hub(hubId: string): HubRecord {
  const addresses = { peerAddress: `${hubId}:8097`, agentAddress: `${hubId}:8091` };
  return { hubId, incarnation: 1000, ...addresses, zone: 'a', draining: hubId === 'h3' };
}

function plane(given: Partial<PlanePart> = {}): PlanePart {
  return {
    registry: { synced: true, up: true, detail: 'redis answers', lastAnswerAt: performance.now() - 250 },
    lastMembers: () => [],
    members: async () =>
      ['m2', 'm1'].map((memberId) => ({
        memberId,
        roles: ['gateway', 'hub'],
        adminAddress: `${memberId}:8095`,
        host: 'node-1',
        version: '1',
        zone: 'a',
        since: 5,
      })),
    hubs: () => ['h3', 'h1', 'h2'].map(hub),
    rttTo: (hubId) => (hubId === 'h2' ? 1.5 : undefined),
    failureOf: (hubId) => (hubId === 'h3' ? { error: new Error('connect ECONNREFUSED'), at: 7 } : undefined),
    linkTo: ({ hubId }) => (hubId === 'h1' ? 'own' : hubId === 'h2' ? 'up' : 'down'),
    ...given,
  };
}

test('members are listed with their admin addresses, and hubs with the links to them', async () => {
  const sessions = () => [aSession('s1', { hubId: 'h2' }), aSession('s2', { hubId: 'h2' })];
  // An all-in-one server lists a tunnel for each of its roles.
  const tunnels = () => new Set((['gateway', 'hub'] as const).map((role) => aTunnel({ role, hubId: 'h2' })));
  await using client = await asking({ plane: plane(), sessions, tunnels });
  const { members, hubs, registry, servers, membersError } = await client.admin.listMembers({});
  assert.deepEqual(
    members.map(({ memberId, adminAddress, self }) => [memberId, adminAddress, self]),
    [
      ['m1', 'm1:8095', true],
      ['m2', 'm2:8095', false],
    ],
  );
  assert.deepEqual([members[0]?.roles, members[0]?.host, members[0]?.sinceMs], [[ROLE_GATEWAY, ROLE_HUB], 'node-1', 5]);
  assert.deepEqual(
    hubs.map(({ hubId, link, sessions: held, tunnels, rttMs, draining }) => [
      hubId,
      link,
      held,
      tunnels,
      rttMs,
      draining,
    ]),
    [
      ['h1', LINK_OWN, 0, 0, undefined, false],
      ['h2', LINK_UP, 2, 1, 1.5, false],
      ['h3', LINK_DOWN, 0, 0, undefined, true],
    ],
  );
  const failed = { text: 'connect ECONNREFUSED', atMs: 7 };
  assert.deepEqual(
    hubs.map(({ failure }) => failure),
    [undefined, undefined, failed],
  );
  assert.deepEqual([registry?.up, registry?.synced, registry?.detail], [true, true, 'redis answers']);
  assert.ok((registry?.ageMs ?? 0) >= 250);
  assert.deepEqual([servers, membersError], [[], '']);
});

test('a role of a later version costs nobody the list', async () => {
  const [m1] = await plane().members();
  const roles = ['gateway', 'relay'] as unknown as Member['roles'];
  const members = async () => [{ ...(m1 as Member), roles }];
  await using client = await asking({ plane: plane({ members }) });
  const { members: found } = await client.admin.listMembers({});
  assert.deepEqual(
    found.map(({ memberId, roles: known }) => [memberId, known]),
    [['m2', [ROLE_GATEWAY]]],
  );
});

test('without the registry, hubs come from the copy, and the answer says why the members are missing', async () => {
  const members = () => Promise.reject(new Error('redis does not answer'));
  await using client = await asking({ plane: plane({ members }) });
  const answer = await client.admin.listMembers({});
  assert.deepEqual([answer.members, answer.membersError, answer.hubs.length], [[], 'redis does not answer', 3]);
});

test('an agent lists the servers that it is connected to, and how many it wants', async () => {
  const server = { serverId: 'h1', address: '10.0.0.1:8091', plane: 'isthmus', leaving: false, open: 3 };
  const servers = { connected: () => [{ ...server, protocol: 'packets' as const }], wanted: () => 2 };
  await using client = await asking({ servers });
  const answer = await client.admin.listMembers({});
  const protocol = adminApi.LinkProtocol.LINK_PROTOCOL_PACKETS;
  assert.deepEqual([answer.servers, answer.serversWanted], [[{ ...server, protocol }], 2]);
  assert.deepEqual([answer.members, answer.hubs, answer.registry], [[], [], undefined]);
});

const [here, there] = [hostname(), 'elsewhere'];

for (const [name, listed, alive] of [
  [
    'a dead member is not listed if another process runs at its address, whatever their machines are called',
    [
      ['m1', '10.0.0.1:8095', there, 30],
      ['dead', '10.0.0.1:8095', 'old-name', 10],
      ['m2', '127.0.0.1:8095', here, 20],
      ['dead-2', '127.0.0.1:8095', here, 10],
      ['m3', '', there, 10],
      ['m4', '', there, 20],
    ],
    ['m1', 'm2', 'm3', 'm4'],
  ],
  [
    'members at loopback addresses elsewhere are all listed, because two machines may have one name',
    [
      ['m2', '127.0.0.1:8095', there, 10],
      ['m3', '127.0.0.1:8095', there, 20],
      ['m4', '[::1]:8095', here, 30],
    ],
    ['m2', 'm3', 'm4'],
  ],
] as const)
  test(name, async () => {
    const members = listed.map(([memberId, adminAddress, host, since]) => {
      return { memberId, roles: ['gateway' as const], adminAddress, host, version: '1', zone: '', since };
    });
    await using client = await asking({ plane: plane({ members: async () => members }) });
    const { members: found } = await client.admin.listMembers({});
    assert.deepEqual(
      found.map(({ memberId }) => memberId),
      alive,
    );
  });
