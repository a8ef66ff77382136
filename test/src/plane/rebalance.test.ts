import assert from 'node:assert/strict';
import test from 'node:test';
import { ranking } from '@isthmus/agent';
import { redisMissing, startRedis } from '@isthmus/registry/testing';
import {
  type Back,
  echo,
  eventually,
  type Front,
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
  /** Starts a hub of this plane, for the first time or again. */
  start(index: number): Promise<Back>;
}

/** Two hubs, which know each other by name, a gateway and agents. */
async function planeOfTwo(scope: Scope): Promise<Plane> {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'test' };
  const start = (index: number) => startHub(scope, trust, { ...plane, 'server-id': IDS[index] });
  const hubs = [await start(0), await start(1)];
  const gateway = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)) });
  const agents = await Promise.all(
    Array.from({ length: AGENTS }, (_, index) =>
      startAgent(scope, trust, hubs[index % 2]?.agentPort as number, {
        ...{ 'agent-id': `agent-${index}`, 'session-count': SESSIONS, 'rebalance-time': '3s' },
      }),
    ),
  );
  await Promise.all([...hubs.map(({ program }) => program), gateway.program].map((program) => program.waitReady()));
  return { trust, gateway, hubs, agents, start };
}

test('sessions move to a hub that joins, no dial fails, and no tunnel is cut', { skip }, async () => {
  await using scope = new Scope();
  const { gateway, hubs, start } = await planeOfTwo(scope);
  const settled = (hubIds: readonly string[]) =>
    eventually(async () => assert.deepEqual(await agentsByHub(scope, hubs), wanted(hubIds)), DEADLINE);
  await settled(IDS.slice(0, 2));
  const destination = await echo(scope);
  const tunnels = await Promise.all(
    Array.from({ length: 4 * AGENTS }, () => dial(scope, gateway, 'connect', destination.authority)),
  );
  for (const tunnel of tunnels) await carries(tunnel);
  const diallers = (['grpc', 'connect'] as const).map(
    (protocol) => new Dialler(scope, gateway, protocol, destination.authority),
  );
  hubs.push(await start(2));
  // A session from which an agent goes is there until its last tunnel has ended.
  const joined = wanted(IDS)[IDS[2] as string] ?? [];
  assert.ok(joined.length > 0 && joined.length < AGENTS);
  await eventually(async () => {
    assert.deepEqual((await agentsByHub(scope, hubs))[IDS[2] as string], joined);
  }, DEADLINE);
  for (const tunnel of tunnels) {
    await carries(tunnel, 'still here');
    tunnel.destroy();
  }
  await settled(IDS);
  const dials = diallers.map((dialler) => dialler.dials);
  await until(() => diallers.every((dialler, index) => dialler.dials > (dials[index] as number) + 10), {
    deadline: DEADLINE,
    what: 'ten more dials of each caller',
  });
  await Promise.all(diallers.map((dialler) => dialler.stop()));
  assert.deepEqual(
    diallers.flatMap(({ failures }) => failures.map(({ message }) => message)),
    [],
  );
});
