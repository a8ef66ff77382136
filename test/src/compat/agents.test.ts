import assert from 'node:assert/strict';
import test from 'node:test';
import { dialsPend, echoes } from '../edges/rig.ts';
import {
  blackHole,
  connectThrough,
  echo,
  eventually,
  grpcThrough,
  type LogLine,
  newTrust,
  type Program,
  packetHub,
  packetsThrough,
  peerDial,
  relayTo,
  scoped,
  startAgent,
  startPeerDial,
  summaryOf,
  tunnelThrough,
  until,
  web,
} from '../harness/index.ts';
import { across, acrossSharedServers, EVERY_PAIR, type Make, OUR_SERVER, startAgentOf, startServerOf } from './rig.ts';

/** For tests that leave their server as it was, without agents. */
const acrossAgents = acrossSharedServers();

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';

async function total(program: Program, metric: string): Promise<number> {
  return [...(await program.metric(metric)).values()].reduce((sum, value) => sum + value, 0);
}

const dialsOf = (agent: Program) => total(agent, `${AGENT}dial_duration_seconds_count`);

acrossAgents(
  EVERY_PAIR,
  'a draining agent does not exit: the last agent takes new dials until its tunnels are done',
  async (scope, rig) => {
    const { server, agents, makes } = await rig();
    const [agent] = agents as [Program];
    const destination = await echo(scope);
    const tunnel = await tunnelThrough(scope, { via: server.connect, destination: destination.authority });
    agent.signal('SIGTERM');
    await agent.waitForLine(/drain|stopping/i);
    for (const _ of Array(3)) {
      const { status, body, socket } = await connectThrough(scope, {
        via: server.connect,
        destination: destination.authority,
      });
      assert.equal(status, 200, body);
      socket.destroy();
    }
    assert.ok(await echoes(tunnel, 'still here'));
    assert.ok(agent.running);
    if (makes.agent === 'Go') return;
    tunnel.destroy();
    assert.deepEqual(await agent.ended(), { code: 0, signal: null });
  },
);

acrossAgents(EVERY_PAIR, 'new dials avoid a draining agent while there is another', async (scope, rig) => {
  const { server, agents, startAgent: another } = await rig();
  const [draining] = agents as [Program];
  const destination = await echo(scope);
  await tunnelThrough(scope, { via: server.connect, destination: destination.authority });
  await until(async () => (await dialsOf(draining)) === 1, { what: 'the first dial to be counted' });
  const fresh = await another({ 'agent-id': 'fresh' });
  await fresh.waitReady();
  draining.signal('SIGTERM');
  /**
   * Returns how many of `dials` new dials each agent took. A Go agent counts a dial shortly after answering it, and a slow dial may be
   * tried at both.
   */
  const take = async (dials: number) => {
    const before = [await dialsOf(draining), await dialsOf(fresh)] as const;
    for (const _ of Array(dials)) await grpcThrough(scope, server.grpc, destination.authority);
    const dialled = before[0] + before[1] + dials;
    const after = await until(
      async () => {
        const counts = [await dialsOf(draining), await dialsOf(fresh)] as const;
        return counts[0] + counts[1] >= dialled && counts;
      },
      { what: `${dialled} dials to be counted` },
    );
    return { draining: after[0] - before[0], fresh: after[1] - before[1] };
  };
  // A server picks at random, so a few dials may avoid it by luck.
  await until(async () => (await take(20)).draining === 0, { what: 'dials that avoid the draining agent' });
  assert.equal((await take(10)).draining, 0);
  assert.ok(draining.running);
});

acrossAgents(
  EVERY_PAIR,
  'two agents with one id are one backend, and the first keeps its tunnels',
  async (scope, rig) => {
    const { server, startAgent: another } = await rig();
    const destination = await echo(scope);
    const tunnel = await tunnelThrough(scope, { via: server.mtls, destination: destination.authority });
    const second = await another({ 'agent-id': 'agent-0' });
    await second.waitReady();
    const samples = await server.program.metric(`${SERVER}ready_backends`);
    assert.deepEqual([...samples.values()], [1]);
    assert.ok(await echoes(tunnel, 'mine'));
  },
);

acrossAgents(
  EVERY_PAIR,
  "a killed agent's tunnels end on every transport, and another agent takes the next dials",
  async (scope, rig, makes) => {
    const { server, startAgent: another } = await rig({ agents: 0 });
    // A name of its own: of the sessions of one agent, only the first ones within a minute are logged at once.
    const killed = await another({ 'agent-id': 'killed' });
    await killed.waitReady();
    const destination = await echo(scope);
    const dest = destination.authority;
    const holding = await Promise.all([
      startPeerDial(scope, { via: { uds: server.grpc.uds }, dest, do: 'hold' }),
      startPeerDial(scope, { via: { uds: server.grpc.uds }, dest, do: 'hold' }),
    ]);
    await Promise.all(holding.map((program) => program.waitForLine(/^held$/)));
    const tunnel = await tunnelThrough(scope, { via: server.mtls, destination: dest });
    tunnel.resume();
    const other = await another({ 'agent-id': 'other' });
    await other.waitReady();
    const logged = server.program.logs.length;
    await killed.kill();
    await Promise.all([
      until(() => tunnel.readableEnded || tunnel.destroyed, { what: 'the end of the CONNECT tunnel' }),
      ...holding.map((program) => summaryOf(program)),
    ]);
    const left = async () => [...(await server.program.metric(`${SERVER}ready_backends`)).values()];
    await eventually(async () => assert.deepEqual(await left(), [1]));
    if (makes.server === 'our') {
      // The server sees the connection end; it does not wait for a PING to go unanswered.
      const isEnd = ({ msg, agent }: LogLine) => msg === 'session closed' && agent === 'killed';
      const end = () => server.program.logs.slice(logged).find(isEnd);
      const { reason } = await until(end, { what: 'the end of the session' });
      assert.match(String(reason), /^agent killed: ./);
      assert.doesNotMatch(String(reason), /PING/);
    }
    await eventually(async () => {
      const sum = await peerDial(scope, { via: { uds: server.grpc.uds }, dest, do: 'echo', size: 100, count: 5 });
      assert.equal(sum.failed, 0, sum.results.find(({ error }) => error)?.error);
    });
  },
  'Go',
);

across(EVERY_PAIR, 'a dial that waits for an agent fails when the agent dies', async (scope, rig, makes) => {
  const { server, agents } = await rig();
  const [agent] = agents as [Program];
  // A stopped agent never answers; a running one would give up after 5 s. A thread of a Go agent runs on for a moment, and may still dial.
  const address = await blackHole(scope);
  agent.signal('SIGSTOP');
  const answer = connectThrough(scope, { via: server.connect, destination: address });
  const told = packetsThrough(scope, server.grpc).dial(address);
  await dialsPend(server.program, 2, answer, told);
  await agent.kill();
  const { status } = await answer;
  // 504 would mean that the dial ran into its own limit.
  assert.ok(status === 502 || status === 503, String(status));
  // A Go server does not answer its gRPC caller.
  if (makes.server === 'our') assert.notEqual((await told).error, '');
});

across(
  EVERY_PAIR,
  'a server that is asked to stop drops its callers instead of waiting for them',
  async (scope, rig, makes) => {
    const { server } = await rig();
    const destination = await echo(scope);
    const tunnel = await tunnelThrough(scope, { via: server.mtls, destination: destination.authority });
    tunnel.resume();
    const packets = packetsThrough(scope, server.grpc);
    await packets.dial(destination.authority);
    server.program.signal('SIGTERM');
    await until(() => tunnel.readableEnded || tunnel.destroyed, { what: 'the end of the CONNECT tunnel' });
    await packets.ended();
    await eventually(() => assert.equal(destination.open, 0));
    if (makes.server === 'Go') return;
    assert.deepEqual(await server.program.ended(), { code: 0, signal: null });
    assert.deepEqual(
      server.program.logs.filter(({ msg }) => /the time for draining is over|closing takes too long/.test(String(msg))),
      [],
    );
  },
);

const MIXED: readonly [Make, Make][] = [
  ['Go', 'our'],
  ['our', 'Go'],
];
for (const [first, second] of MIXED) {
  const pair = OUR_SERVER.filter(({ agent }) => agent === 'Go');
  acrossAgents(pair, `dials fail over from ${first} agent to ${second} agent`, async (scope, rig) => {
    const { trust, server } = await rig({ agents: 0 });
    const agents = [];
    for (const make of [first, second]) {
      const agent = await startAgentOf(scope, make, trust, server.agentPort, { 'agent-id': `${make}-agent` });
      await agent.waitReady();
      agents.push(agent);
    }
    const site = await web(scope, 'mixed');
    const dials = { via: { uds: server.grpc.uds }, dest: site.authority, count: 20, concurrency: 4 };
    assert.equal((await peerDial(scope, dials)).failed, 0);
    for (const agent of agents) assert.ok((await dialsOf(agent)) > 0, `${agent.name} took none`);
    await agents[0]?.kill();
    const after = await peerDial(scope, dials);
    assert.equal(after.failed, 0, after.results.find(({ error }) => error)?.error);
  });
}

across(EVERY_PAIR, 'agents find a new server on the same port', async (scope, rig) => {
  const { server, agents, trust, makes } = await rig({ serverFlags: { 'server-id': 'first' } });
  await server.program.kill();
  const { agentPort } = server;
  const next = await startServerOf(scope, makes.server, trust, { 'server-id': 'second', 'agent-port': agentPort });
  await next.program.waitReady();
  await Promise.all(agents.map((agent) => agent.waitReady()));
  const destination = await echo(scope);
  assert.equal((await connectThrough(scope, { via: next.connect, destination: destination.authority })).status, 200);
});

across(EVERY_PAIR, 'behind a load balancer an agent connects to --server-count servers', async (scope, _rig, makes) => {
  const trust = await newTrust(scope);
  const ids = ['left', 'right'];
  const servers = await Promise.all(
    ids.map((id) => startServerOf(scope, makes.server, trust, { 'server-id': id, 'server-count': 2 })),
  );
  const balancer = await relayTo(scope, ...servers.map(({ agentPort }) => agentPort));
  const agent = await startAgentOf(scope, makes.agent, trust, balancer.port, { 'agent-id': 'a' });
  await Promise.all(servers.map(({ program }) => program.waitReady()));
  await eventually(async () => assert.equal(await total(agent, `${AGENT}open_server_connections`), 2));
  const destination = await echo(scope);
  for (const server of servers) {
    assert.equal((await connectThrough(scope, { via: server.mtls, destination: destination.authority })).status, 200);
  }
});

test(
  "our agent answers DATA for an unknown connection with CLOSE_RSP and an error, at a server of ANP's",
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const hub = await packetHub(scope, trust, 'one');
    await startAgent(scope, trust, hub.port, {
      'agent-id': 'ours',
      'agent-identifiers': 'host=x.example&default-route=true',
    });
    const agent = await hub.agent();
    assert.deepEqual(agent.metadata.get('agentid'), ['ours']);
    const [identifiers] = agent.metadata.get('agentidentifiers');
    assert.deepEqual([...new URLSearchParams(String(identifiers))].sort(), [
      ['default-route', 'true'],
      ['host', 'x.example'],
    ]);
    agent.send({ type: 'DATA', connectID: 4711n, error: '', data: Buffer.from('lost') });
    const { error } = await agent.expect('CLOSE_RSP', ({ connectID }) => connectID === 4711n);
    assert.notEqual(error, '');
    const destination = await echo(scope);
    const random = 2n ** 62n + 1n;
    agent.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination.authority, random });
    const answer = await agent.expect('DIAL_RSP', (packet) => packet.random === random);
    assert.deepEqual([answer.error, answer.connectID > 0n], ['', true]);
    agent.send({ type: 'CLOSE_REQ', connectID: answer.connectID });
    const closed = await agent.expect('CLOSE_RSP', ({ connectID }) => connectID === answer.connectID);
    assert.equal(closed.error, '');
    await eventually(() => assert.equal(destination.open, 0));
  }),
);

test(
  'our agent sends DRAIN before it leaves',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const hub = await packetHub(scope, trust, 'one');
    const program = await startAgent(scope, trust, hub.port);
    const agent = await hub.agent();
    const destination = await echo(scope);
    agent.send({ type: 'DIAL_REQ', protocol: 'tcp', address: destination.authority, random: 1n });
    const { connectID } = await agent.expect('DIAL_RSP');
    program.signal('SIGTERM');
    await agent.expect('DRAIN');
    assert.ok(program.running);
    agent.send({ type: 'CLOSE_REQ', connectID });
    assert.deepEqual(await program.ended(), { code: 0, signal: null });
  }),
);
