import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import { adminApi } from '@isthmus/proto/admin';
import {
  type Back,
  echo,
  eventually,
  type Flags,
  type Front,
  goMissing,
  hasHedged,
  newTrust,
  type Program,
  peer,
  relayTo,
  type Scope,
  scoped,
  startAgent,
  startCommand,
  startServer,
  type Trust,
  until,
  uplinkFlags,
} from '../harness/index.ts';
import { adminOf, carries, dial, PROTOCOLS } from './dials.ts';

const { ROLE_GATEWAY } = adminApi.Role;

const skip = redisMissing();

interface Servers {
  readonly trust: Trust;
  readonly servers: readonly [Front & Back, Front & Back];
  /** Starts another server of the plane. */
  join(serverId: string, flags?: Flags): Promise<Front & Back>;
}

/** Starts two all-in-one servers of one plane. */
async function twoServers(scope: Scope): Promise<Servers> {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const join = async (serverId: string, more: Flags = {}) => {
    const plane = { 'redis-url': redis.url, plane: 'test', 'server-id': serverId };
    // Servers announce no address here, so agents stay where the test connects them.
    return startServer(scope, trust, { 'advertise-agent-address': undefined, ...plane, ...more });
  };
  return { trust, join, servers: [await join('server-1'), await join('server-2')] };
}

async function known(agent: Program, family: string): Promise<number | undefined> {
  return (await agent.metric(`konnectivity_network_proxy_agent_${family}`)).get('{}');
}

test(
  'a caller at one server of a plane reaches an agent at the other',
  { skip },
  scoped(async (scope) => {
    const { trust, servers } = await twoServers(scope);
    const [near, far] = servers;
    const agent = await startAgent(scope, trust, far.agentPort, { 'agent-id': 'only', 'session-count': 1 });
    await Promise.all([near.program, far.program, agent].map((program) => program.waitReady()));
    assert.equal(await known(agent, 'open_server_connections'), 1);
    const destination = await echo(scope);
    for (const server of servers) {
      for (const protocol of PROTOCOLS) await carries(await dial(scope, server, protocol, destination.authority));
    }
    const tunnels = async ({ program }: Front) => (await adminOf(scope, program).listTunnels({})).tunnels;
    const hubs = [...(await tunnels(near)), ...(await tunnels(far))].map(({ hubId }) => hubId);
    assert.deepEqual(new Set(hubs), new Set(['server-2']));
    // On a busy machine, the agent may just have lost its session, and comes again.
    await eventually(async () => {
      const sessions = await Promise.all(
        servers.map(async ({ program }) => (await adminOf(scope, program).listSessions({})).sessions),
      );
      assert.deepEqual(
        sessions.map((list) => list.map(({ agentId, hubId }) => `${agentId} at ${hubId}`)),
        [['only at server-2'], ['only at server-2']],
      );
    });
    await agent.kill();
    await until(async () => (await near.program.get('/readyz')).status === 500, {
      what: 'the other server to be without an agent',
    });
    await assert.rejects(dial(scope, near, 'connect', destination.authority), /503 .*No agent available/);
  }),
);

/** Opens a tunnel through the server's own hub: the first dial goes there, or a later one if the server has hedged. */
async function dialHome(scope: Scope, server: Front, hub: string, open: () => Promise<Duplex>): Promise<Duplex> {
  const { program } = server;
  const admin = adminOf(scope, program);
  const tunnels = async () => (await admin.listTunnels({})).tunnels.filter(({ role }) => role === ROLE_GATEWAY);
  for (;;) {
    const before = new Set((await tunnels()).map(({ dialId }) => dialId));
    const tunnel = await open();
    const made = (await tunnels()).find(({ dialId }) => !before.has(dialId));
    if (made?.hubId === hub) return tunnel;
    tunnel.destroy();
    assert.ok(await hasHedged(program), `a dial went to ${made?.hubId}, and not to ${hub}, the server's own`);
  }
}

for (const agents of [1, 2]) {
  test(
    `with sessions of ${agents} agent(s) at both servers, killing one server cuts no tunnel of the other's callers`,
    { skip },
    scoped(async (scope) => {
      const { trust, servers } = await twoServers(scope);
      const [stays, goes] = servers;
      for (let index = 0; index < agents; index++) {
        for (const { agentPort } of servers) {
          await startAgent(scope, trust, agentPort, { 'agent-id': `agent-${index}`, 'session-count': 1 });
        }
      }
      const sessions = async ({ program }: Front) => (await adminOf(scope, program).listSessions({})).sessions.length;
      await eventually(async () => {
        for (const server of servers) assert.equal(await sessions(server), 2 * agents);
      });
      const destination = await echo(scope);
      const tunnels: Duplex[] = [];
      for (const protocol of Array.from({ length: 8 }, () => PROTOCOLS).flat()) {
        const open = () => dial(scope, stays, protocol, destination.authority);
        tunnels.push(await dialHome(scope, stays, 'server-1', open));
      }
      await goes.program.kill();
      await eventually(async () => assert.equal(await sessions(stays), agents));
      const lost = await Promise.all(
        tunnels.map((tunnel) =>
          carries(tunnel).then(
            () => 0,
            () => 1,
          ),
        ),
      );
      assert.equal(
        lost.reduce<number>((sum, one) => sum + one, 0),
        0,
        'tunnels that were cut',
      );
    }),
  );
}

test(
  'a Go agent learns how many servers the plane has, and finds each of them behind a load balancer',
  { skip: skip || goMissing() },
  scoped(async (scope) => {
    const { trust, servers, join } = await twoServers(scope);
    const all: (Front & Back)[] = [...servers];
    for (const count of [2, 3]) {
      if (count === 3) all.push(await join('server-3'));
      const balancer = await relayTo(scope, ...all.map(({ agentPort }) => agentPort));
      const { healthPort, ...own } = await uplinkFlags(trust, balancer.port);
      const flags = { ...own, 'agent-id': `go-${count}`, v: 4 };
      const agent = startCommand(scope, [await peer(), 'agent'], { flags, healthPort });
      await eventually(async () => {
        assert.equal(await known(agent, 'open_server_connections'), count);
        assert.equal(await known(agent, 'known_server_count'), count);
      });
    }
    // A server with --server-count announces that number instead.
    const told = await join('server-4', { 'server-count': 9 });
    const { healthPort, ...own } = await uplinkFlags(trust, told.agentPort);
    const flags = { ...own, 'agent-id': 'go-9', v: 4 };
    const agent = startCommand(scope, [await peer(), 'agent'], { flags, healthPort });
    await eventually(async () => assert.equal(await known(agent, 'known_server_count'), 9));
    const destination = await echo(scope);
    for (const server of all) await carries(await dial(scope, server, 'grpc', destination.authority));
  }),
);
