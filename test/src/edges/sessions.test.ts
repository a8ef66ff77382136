import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import {
  type AllInOne,
  allInOne,
  type Back,
  echo,
  type Front,
  newTrust,
  type Program,
  relayTo,
  type Scope,
  scoped,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { dial, type Edge, echoes, edgesOf, goesTo, metricIs, taker, tunnelsAre } from './rig.ts';

const BACKENDS = 'konnectivity_network_proxy_server_ready_backend_connections';
const SERVERS = 'konnectivity_network_proxy_agent_open_server_connections';

test(
  'a draining agent keeps its tunnels, takes no dial that another agent can take, and exits when its last tunnel ends',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { agents: 2 });
    const target = await echo(scope);
    const connect = connectOf(server);
    const tunnels: Duplex[] = [];
    const first = await taker(agents, async () => tunnels.push(await dial(scope, connect, target.authority)));
    const other = agents.find((agent) => agent !== first) as Program;
    await drain(server.program, first);
    const more = async () => tunnels.push(await dial(scope, connect, target.authority));
    for (let dials = 0; dials < 10; dials++) await goesTo(server, agents, [other], more);
    for (const tunnel of tunnels) assert.ok(await echoes(tunnel, 'still here'));
    assert.ok(first.running);
    for (const tunnel of tunnels) tunnel.end();
    assert.deepEqual(await first.ended(), { code: 0, signal: null });
    assert.deepEqual([target.failures, other.running], [[], true]);
  }),
);

test(
  'a draining agent takes dials while it is the only one, until a new agent relieves it',
  scoped(async (scope) => {
    const { trust, server, agents } = await allInOne(scope);
    const [draining] = agents as [Program];
    const target = await echo(scope);
    const connect = connectOf(server);
    const running = await dial(scope, connect, target.authority);
    await drain(server.program, draining);
    assert.ok(await echoes(await dial(scope, connect, target.authority), 'taken all the same'));
    const fresh = await startAgent(scope, trust, server.agentPort, { 'agent-id': 'fresh' });
    await fresh.waitReady();
    const tunnels = [running];
    const more = async () => tunnels.push(await dial(scope, connect, target.authority));
    await goesTo(server, [draining, fresh], [fresh], more);
    for (const tunnel of tunnels) assert.ok(await echoes(tunnel, 'still here'));
  }),
);

test(
  'agents with one id are one backend, and when one is killed the other carries on',
  scoped(async (scope) => {
    const { trust, server, agents } = await allInOne(scope, { agentFlags: { 'agent-id': 'twin' } });
    const second = await startAgent(scope, trust, server.agentPort, { 'agent-id': 'twin' });
    await second.waitReady();
    const twins = [...agents, second];
    const target = await echo(scope);
    const connect = connectOf(server);
    await sessionsAre(server, 2);
    await metricIs(server.program, BACKENDS, 1);
    await everyOneGetsADial(scope, twins, connect, target.authority);
    await second.kill();
    await sessionsAre(server, 1);
    for (let dials = 0; dials < 5; dials++) {
      assert.ok(await echoes(await dial(scope, connect, target.authority), 'through the one that is left'));
    }
  }),
);

test(
  'dials spread over agents of different ids',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { agents: 3 });
    await metricIs(server.program, BACKENDS, 3);
    const target = await echo(scope);
    await everyOneGetsADial(scope, agents, connectOf(server), target.authority);
  }),
);

test(
  'an agent that expects more servers than there are keeps one session, the oldest',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope, { serverFlags: { 'server-count': 3 } });
    const [agent] = agents as [Program];
    const target = await echo(scope);
    const tunnel = await dial(scope, connectOf(server), target.authority);
    const again = () => opened(server).length >= 4;
    await until(again, { what: 'the agent to look for the others' });
    await sessionsAre(server, 1);
    await metricIs(agent, SERVERS, 1);
    assert.ok(await echoes(tunnel, 'still here'));
  }),
);

test(
  'an agent behind a load balancer connects to two separate servers, and again to one that restarts',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const flags = { 'server-count': 2 };
    const servers = [await startServer(scope, trust, flags), await startServer(scope, trust, flags)] as const;
    const relay = await relayTo(scope, servers[0].agentPort, servers[1].agentPort);
    const agent = await startAgent(scope, trust, relay.port);
    await metricIs(agent, SERVERS, 2);
    const target = await echo(scope);
    const [stays, goes] = servers;
    const running = await dial(scope, connectOf(stays), target.authority);
    assert.ok(await echoes(await dial(scope, connectOf(goes), target.authority), 'through the other'));
    await goes.program.kill();
    await metricIs(agent, SERVERS, 1);
    const back = await startServer(scope, trust, { ...flags, 'agent-port': goes.agentPort });
    await back.program.waitReady();
    await metricIs(agent, SERVERS, 2);
    assert.ok(await echoes(await dial(scope, connectOf(back), target.authority), 'through the one that came back'));
    assert.ok(await echoes(running, 'never disturbed'));
    await tunnelsAre(stays.program, 1);
  }),
);

function connectOf(front: Front): Edge {
  return edgesOf(front).find(({ name }) => name === 'CONNECT over UDS') as Edge;
}

async function everyOneGetsADial(scope: Scope, agents: readonly Program[], edge: Edge, authority: string) {
  const seen = new Set<Program>();
  const next = async () => seen.add(await taker(agents, () => dial(scope, edge, authority))).size === agents.length;
  await until(next, { what: 'every agent to get a dial' });
}

/** Sends SIGTERM to an agent and waits until the server logs the drain. */
async function drain(server: Program, agent: Program): Promise<void> {
  agent.signal('SIGTERM');
  await server.waitForLog(({ msg }) => msg === 'session drains', { what: 'the drain' });
}

function opened({ program }: AllInOne['server']) {
  return program.logs.filter(({ msg }) => msg === 'session opened');
}

/** Waits until a server holds `count` sessions. */
async function sessionsAre({ program }: Front & Back, count: number): Promise<void> {
  let held = 0;
  const right = async () => {
    held = [...(await program.metric('isthmus_sessions')).values()].reduce((sum, each) => sum + each, 0);
    return held === count;
  };
  await until(right, { what: () => `${count} sessions; there are ${held}` });
}
