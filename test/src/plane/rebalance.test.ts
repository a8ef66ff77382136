import assert from 'node:assert/strict';
import test from 'node:test';
import { ranking } from '@isthmus/agent';
import { redisMissing, startRedis } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  echo,
  eventually,
  type Front,
  hubMember,
  type Member,
  newTrust,
  peerFlags,
  Scope,
  startGateway,
  unlessSlow,
  until,
} from '../harness/index.ts';
import { carries, Dialler, dial } from './dials.ts';

const AGENTS = 5;
/** Sessions for each agent. */
const SESSIONS = 2;
const IDS = ['hub-1', 'hub-2', 'hub-3'];
const skip = redisMissing();

/** Returns which agents have a session to each hub, as the hubs report. */
async function agentsByHub(hubs: readonly Member[]): Promise<Record<string, string[]>> {
  const lists = await Promise.all(hubs.map((hub) => hub.sessions()));
  return Object.fromEntries(lists.map((list, index) => [IDS[index], list.map(({ agentId }) => agentId).sort()]));
}

/** Returns which agents each hub should have. */
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
  readonly gateway: Front;
  readonly hubs: readonly [Member, Member];
  readonly agents: readonly Member[];
  /** Starts another hub. */
  join(): Promise<Member>;
}

/** Starts two hubs that know each other by name, a gateway and agents. */
async function planeOfTwo(scope: Scope, sessionCount = SESSIONS): Promise<Plane> {
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'test' };
  const start = (id = '') => hubMember(scope, trust, id, { flags: { ...plane, 'server-id': id } });
  const [one, two] = [await start(IDS[0]), await start(IDS[1])];
  const gateway = await startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)) });
  const agents = await Promise.all(
    Array.from({ length: AGENTS }, (_, index) =>
      agentMember(scope, trust, `agent-${index}`, (index % 2 === 0 ? one : two).agentPort, {
        flags: { 'agent-id': `agent-${index}`, 'session-count': sessionCount, 'rebalance-time': '3s' },
      }),
    ),
  );
  await Promise.all([one.member, two.member, gateway].map(({ program }) => program.waitReady()));
  return { gateway, hubs: [one.member, two.member], agents, join: async () => (await start(IDS[2])).member };
}

/** Fails if any dial fails during an action or soon after. */
async function noDialFails(scope: Scope, gateway: Front, happens: (destination: string) => Promise<void>) {
  const { authority } = await echo(scope);
  const diallers = (['grpc', 'connect'] as const).map((protocol) => new Dialler(scope, gateway, protocol, authority));
  await happens(authority);
  const dials = diallers.map((dialler) => dialler.dials);
  const more = () => diallers.every((dialler, index) => dialler.dials >= (dials[index] as number) + 5);
  await until(more, { what: 'five more dials of each caller' });
  await Promise.all(diallers.map((dialler) => dialler.stop()));
  const failures = diallers.flatMap((dialler) => dialler.failures.map(({ message }) => message));
  assert.deepEqual(failures, []);
}

test('sessions move to a new hub, no dial fails, and no tunnel is cut', { skip }, async () => {
  await using scope = new Scope();
  const plane = await planeOfTwo(scope);
  const { gateway } = plane;
  const hubs: Member[] = [...plane.hubs];
  const settled = (hubIds: readonly string[]) =>
    eventually(async () => assert.deepEqual(await agentsByHub(hubs), wanted(hubIds)));
  await settled(IDS.slice(0, 2));
  await noDialFails(scope, gateway, async (destination) => {
    const tunnels = await Promise.all(
      Array.from({ length: 4 * AGENTS }, () => dial(scope, gateway, 'connect', destination)),
    );
    for (const tunnel of tunnels) await carries(tunnel);
    hubs.push(await plane.join());
    const joined = wanted(IDS)[IDS[2] as string] ?? [];
    assert.ok(joined.length > 0 && joined.length < AGENTS);
    await eventually(async () => {
      assert.deepEqual((await agentsByHub(hubs))[IDS[2] as string], joined);
    });
    // A session that its agent is leaving ends once its tunnels have moved to the agent's others, while they live.
    await settled(IDS);
    for (const tunnel of tunnels) {
      await carries(tunnel, 'still here');
      tunnel.destroy();
    }
  });
});

test('no dial fails when hubs are killed in turn, each as soon as the agents are back', {
  skip: skip || unlessSlow(),
}, async () => {
  await using scope = new Scope();
  const { gateway, hubs, agents } = await planeOfTwo(scope);
  const all = () =>
    eventually(async () => {
      for (const agent of agents) {
        assert.equal(await agent.value('konnectivity_network_proxy_agent_open_server_connections'), SESSIONS);
      }
    });
  await all();
  await noDialFails(scope, gateway, async () => {
    for (let kill = 0; kill < 3; kill++) {
      const hub = hubs[kill % 2] as Member;
      await hub.kill();
      await hub.restart();
      await all();
    }
  });
});

test('an agent with one session opens another before its hub leaves', { skip }, async () => {
  await using scope = new Scope();
  const { gateway, hubs } = await planeOfTwo(scope, 1);
  const all = Array.from({ length: AGENTS }, (_, index) => `agent-${index}`);
  await eventually(async () => {
    assert.deepEqual(
      Object.values(await agentsByHub(hubs))
        .flat()
        .sort(),
      all,
    );
  });
  const [goes, stays] = hubs;
  await noDialFails(scope, gateway, async () => {
    goes.program.signal('SIGTERM');
    assert.deepEqual(await goes.program.ended(), { code: 0, signal: null });
  });
  const left = await stays.sessions();
  assert.deepEqual(left.map(({ agentId }) => agentId).sort(), all);
});
