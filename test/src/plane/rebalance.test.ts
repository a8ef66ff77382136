import assert from 'node:assert/strict';
import test from 'node:test';
import { ranking } from '@isthmus/agent';
import { redisMissing, startRedis } from '@isthmus/registry/testing';
import {
  type Back,
  echo,
  eventually,
  type Front,
  freePort,
  newTrust,
  type Program,
  peerFlags,
  Scope,
  startAgent,
  startGateway,
  startHub,
  type Trust,
  until,
} from '../harness/index.ts';
import { adminOf, carries, Dialler, dial } from './dials.ts';

const DEADLINE = 30_000;
const AGENTS = 6;
/** Sessions of each agent. */
const SESSIONS = 2;
const IDS = ['hub-1', 'hub-2', 'hub-3'];
const skip = redisMissing();

/** Which agents have a session to each hub, by the hubs' own word. */
async function agentsByHub(scope: Scope, hubs: readonly Back[]): Promise<Record<string, string[]>> {
  const lists = await Promise.all(
    hubs.map(async ({ program }) => (await adminOf(scope, program).listSessions({})).sessions),
  );
  return Object.fromEntries(lists.map((list, index) => [IDS[index], list.map(({ agentId }) => agentId).sort()]));
}

/** Which agents each hub should have. */
function wanted(hubIds: readonly string[]): Record<string, string[]> {
  const hubs = hubIds.map((hubId) => ({ hubId, address: '', zone: '', draining: false, generation: 1 }));
  const agentIds = Array.from({ length: AGENTS }, (_, index) => `agent-${index}`);
  const isAt = (agentId: string, hubId: string) =>
    ranking({ agentId, zone: '' }, hubs)
      .slice(0, SESSIONS)
      .some((hub) => hub.hubId === hubId);
  return Object.fromEntries(hubIds.map((hubId) => [hubId, agentIds.filter((agentId) => isAt(agentId, hubId))]));
}

interface Plane {
  readonly trust: Trust;
  readonly gateway: Front;
  readonly hubs: Back[];
  readonly agents: readonly Program[];
  /** Starts a hub of this plane, for the first time or again on its old port. */
  start(index: number): Promise<Back>;
}

/** Two hubs, which know each other by name, a gateway and agents. */
async function planeOfTwo(scope: Scope, sessionCount = SESSIONS): Promise<Plane> {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'test' };
  const ports = await Promise.all(IDS.map(() => freePort()));
  const start = async (index: number): Promise<Back> => {
    const agentPort = ports[index] as number;
    const own = { 'agent-port': agentPort, 'advertise-agent-address': `127.0.0.1:${agentPort}` };
    return { ...(await startHub(scope, trust, { ...plane, ...own, 'server-id': IDS[index] })), agentPort };
  };
  const hubs = [await start(0), await start(1)];
  const gateway = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)) });
  const agents = await Promise.all(
    Array.from({ length: AGENTS }, (_, index) =>
      startAgent(scope, trust, hubs[index % 2]?.agentPort as number, {
        ...{ 'agent-id': `agent-${index}`, 'session-count': sessionCount, 'rebalance-time': '3s' },
      }),
    ),
  );
  await Promise.all([...hubs.map(({ program }) => program), gateway.program].map((program) => program.waitReady()));
  return { trust, gateway, hubs, agents, start };
}

/** Fails when any dial does that is made while something happens, or soon after. */
async function noDialFails(scope: Scope, gateway: Front, happens: (destination: string) => Promise<void>) {
  const { authority } = await echo(scope);
  const diallers = (['grpc', 'connect'] as const).map((protocol) => new Dialler(scope, gateway, protocol, authority));
  await happens(authority);
  const dials = diallers.map((dialler) => dialler.dials);
  const more = () => diallers.every((dialler, index) => dialler.dials > (dials[index] as number) + 10);
  await until(more, { deadline: DEADLINE, what: 'ten more dials of each caller' });
  await Promise.all(diallers.map((dialler) => dialler.stop()));
  const failures = diallers.flatMap((dialler) => dialler.failures.map(({ message }) => message));
  assert.deepEqual(failures, []);
}

test('sessions move to a hub that joins, no dial fails, and no tunnel is cut', { skip }, async () => {
  await using scope = new Scope();
  const { gateway, hubs, start } = await planeOfTwo(scope);
  const settled = (hubIds: readonly string[]) =>
    eventually(async () => assert.deepEqual(await agentsByHub(scope, hubs), wanted(hubIds)), DEADLINE);
  await settled(IDS.slice(0, 2));
  await noDialFails(scope, gateway, async (destination) => {
    const tunnels = await Promise.all(
      Array.from({ length: 4 * AGENTS }, () => dial(scope, gateway, 'connect', destination)),
    );
    for (const tunnel of tunnels) await carries(tunnel);
    hubs.push(await start(2));
    const joined = wanted(IDS)[IDS[2] as string] ?? [];
    assert.ok(joined.length > 0 && joined.length < AGENTS);
    await eventually(async () => {
      assert.deepEqual((await agentsByHub(scope, hubs))[IDS[2] as string], joined);
    }, DEADLINE);
    // A session from which an agent goes is there until its last tunnel has ended.
    for (const tunnel of tunnels) {
      await carries(tunnel, 'still here');
      tunnel.destroy();
    }
    await settled(IDS);
  });
});

test('hubs that are killed in turn, as soon as agents are back, fail no dial', { skip }, async () => {
  await using scope = new Scope();
  const { gateway, hubs, agents, start } = await planeOfTwo(scope);
  const all = () =>
    eventually(async () => {
      for (const agent of agents) {
        const sessions = await agent.metric('konnectivity_network_proxy_agent_open_server_connections');
        assert.equal(sessions.get('{}'), SESSIONS);
      }
    }, DEADLINE);
  await all();
  await noDialFails(scope, gateway, async () => {
    for (let kill = 0; kill < 4; kill++) {
      const index = kill % 2;
      await (hubs[index] as Back).program.kill();
      hubs[index] = await start(index);
      await all();
    }
  });
});

test('an agent of one session has another before its hub goes', { skip }, async () => {
  await using scope = new Scope();
  const { gateway, hubs } = await planeOfTwo(scope, 1);
  const all = Array.from({ length: AGENTS }, (_, index) => `agent-${index}`);
  await eventually(async () => {
    assert.deepEqual(
      Object.values(await agentsByHub(scope, hubs))
        .flat()
        .sort(),
      all,
    );
  }, DEADLINE);
  const [goes, stays] = hubs as [Back, Back];
  await noDialFails(scope, gateway, async () => {
    goes.program.signal('SIGTERM');
    assert.deepEqual(await goes.program.ended(DEADLINE), { code: 0, signal: null });
  });
  const left = (await adminOf(scope, stays.program).listSessions({})).sessions;
  assert.deepEqual(left.map(({ agentId }) => agentId).sort(), all);
});
