import assert from 'node:assert/strict';
import test from 'node:test';
import { dialsPend } from '../edges/rig.ts';
import {
  agentPackets,
  allInOne,
  blackHole,
  connectThrough,
  echo,
  eventually,
  type Front,
  freePort,
  goMissing,
  newTrust,
  open,
  type Program,
  packetHub,
  packetsThrough,
  peer,
  randomId,
  refused,
  scoped,
  startAgent,
  startCommand,
  startServer,
  uplinkFlags,
} from '../harness/index.ts';
import { carries, closed, dial } from './dials.ts';
import { samples, value } from './families.ts';

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';

function failures({ program }: Front): Promise<Record<string, number>> {
  return samples(program, `${SERVER}dial_failure_count`);
}

test(
  'gauges follow callers, tunnels and agents',
  scoped(async (scope) => {
    const { server, agents, trust } = await allInOne(scope, { agents: 2 });
    const { program } = server;
    const gauges = async () => ({
      established: await value(program, `${SERVER}established_connections`),
      http: await value(program, `${SERVER}http_connections`),
      grpc: await samples(program, `${SERVER}grpc_connections`),
      pending: await value(program, `${SERVER}pending_backend_dials`),
      backends: await value(program, `${SERVER}ready_backend_connections`),
      byStrategy: await samples(program, `${SERVER}ready_backends`),
    });
    const idle = {
      established: 0,
      http: 0,
      grpc: { Proxy: 0, Connect: 0 },
      pending: 0,
      backends: 2,
      byStrategy: { default: 2 },
    };
    await eventually(async () => assert.deepEqual(await gauges(), idle));
    for (const agent of agents) {
      assert.equal(await value(agent, `${AGENT}open_server_connections`), 1);
      assert.equal(await value(agent, `${AGENT}known_server_count`), 1);
    }

    const destination = await echo(scope);
    const tunnels = await Promise.all(
      (['grpc', 'grpc', 'connect', 'mtls'] as const).map((protocol) =>
        dial(scope, server, protocol, destination.authority),
      ),
    );
    await Promise.all(tunnels.map((tunnel) => carries(tunnel)));
    const busy = { ...idle, established: 4, http: 2, grpc: { Proxy: 2, Connect: 0 } };
    await eventually(async () => assert.deepEqual(await gauges(), busy));
    const endpoints = async () => {
      const counts = await Promise.all(agents.map((agent) => value(agent, `${AGENT}open_endpoint_connections`)));
      return counts.reduce((sum: number, count) => sum + (count ?? 0), 0);
    };
    // A dial that was hedged has one more for a moment.
    await eventually(async () => assert.equal(await endpoints(), 4));
    for (const tunnel of tunnels) tunnel.end();
    await Promise.all(tunnels.map((tunnel) => closed(tunnel)));
    await eventually(async () => assert.deepEqual(await gauges(), idle));
    assert.equal(await value(program, `${SERVER}dial_duration_seconds_count`), 4);
    assert.equal(await value(program, `${SERVER}connection_duration_seconds_count`), 4);
    assert.ok(((await value(program, `${SERVER}frontend_write_duration_seconds_count`)) ?? 0) >= 4);

    // A second agent of the same id is the same backend.
    const twin = await startAgent(scope, trust, server.agentPort, { 'agent-id': 'agent-0' });
    await twin.waitReady();
    await eventually(async () => assert.equal((await gauges()).backends, 2));
    await agents[1]?.kill();
    await eventually(async () => assert.deepEqual((await gauges()).byStrategy, { default: 1 }));
  }),
);

test(
  'packets are counted by direction and type, for callers and for Go agents',
  { skip: goMissing() },
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const { healthPort, ...own } = await uplinkFlags(trust, server.agentPort);
    const flags = { ...own, 'agent-id': 'go', v: 4 };
    const agent = startCommand(scope, [await peer(), 'agent'], { flags, healthPort });
    await server.program.waitReady();
    assert.deepEqual(await samples(server.program, `${SERVER}grpc_connections`), { Proxy: 0, Connect: 1 });

    const tunnel = await dial(scope, server, 'grpc', (await echo(scope)).authority);
    await carries(tunnel);
    tunnel.end();
    await closed(tunnel);
    const packets = Object.fromEntries(
      ['from_client', 'to_client', 'from_agent', 'to_agent'].flatMap((segment) =>
        ['DIAL_REQ', 'DIAL_RSP', 'DATA', 'CLOSE_REQ', 'CLOSE_RSP'].map((type) => [`${type} ${segment}`, 0]),
      ),
    );
    const expected: Record<string, number> = {};
    for (const name of Object.keys(packets)) {
      const [type, segment] = name.split(' ') as [string, string];
      const isRequest = segment === 'from_client' || segment === 'to_agent';
      const sent = isRequest ? ['DIAL_REQ', 'DATA', 'CLOSE_REQ'] : ['DIAL_RSP', 'DATA', 'CLOSE_RSP'];
      if (sent.includes(type)) expected[name] = 1;
    }
    await eventually(async () => {
      assert.deepEqual(await samples(server.program, `${SERVER}stream_packets_total`), expected);
    });
    await agent.kill();
    await eventually(async () => assert.equal(await value(server.program, `${SERVER}ready_backend_connections`), 0));
  }),
);

test(
  'a failed dial counts once, by its reason, before its caller sees the error',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust, { 'backend-dial-timeout': '3s' });
    const via = server.connect;
    assert.deepEqual(await failures(server), {});
    const none = await connectThrough(scope, { via, destination: '127.0.0.1:1' });
    assert.equal(none.status, 503);
    assert.deepEqual(await failures(server), { no_agent: 1 });

    const agent = await startAgent(scope, trust, server.agentPort);
    await server.program.waitReady();
    const where = await refused();
    for (const [index, protocol] of (['grpc', 'connect', 'mtls'] as const).entries()) {
      await assert.rejects(dial(scope, server, protocol, where), /connection refused/);
      assert.deepEqual(await failures(server), { no_agent: 1, error_response: index + 1 });
    }
    assert.deepEqual(await samples(agent, `${AGENT}endpoint_dial_failure_total`), { unknown: 3 });

    const hole = await blackHole(scope);
    await assert.rejects(dial(scope, server, 'grpc', hole), /timeout/);
    assert.deepEqual(await failures(server), { no_agent: 1, error_response: 3, backend_dial_timeout: 1 });
  }),
);

test(
  'a caller that vanishes, or sends DIAL_CLS and closes at once, counts as frontend_close',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const server = await startServer(scope, trust);
    const via = { port: server.agentPort, ca: trust.agents.cert, identity: await trust.agents.client('agent') };
    const silent = agentPackets(scope, via, { agentid: 'silent' });
    await server.program.waitReady();
    const address = '10.0.0.1:443';
    const vanishing = await open(scope, server.connect);
    vanishing.write(`CONNECT ${address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    await silent.expect('DIAL_REQ');
    vanishing.destroy();
    await eventually(async () => assert.deepEqual(await failures(server), { frontend_close: 1 }));
    await silent.expect('DIAL_CLS');
    const packets = packetsThrough(scope, server.grpc);
    const random = randomId();
    packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address, random });
    await silent.expect('DIAL_REQ');
    packets.send({ type: 'DIAL_CLS', random });
    packets.stream.end();
    await eventually(async () => assert.deepEqual(await failures(server), { frontend_close: 2 }));
  }),
);

test(
  "an agent's own timeout counts as the destination's error; its death before the answer counts as the backend's",
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const [agent] = agents as [Program];
    const hole = await blackHole(scope);
    // The agent answers after its own limit of 5 s.
    await assert.rejects(dial(scope, server, 'connect', hole), /504 .*i\/o timeout/);
    assert.deepEqual(await failures(server), { error_response: 1 });
    assert.deepEqual(await samples(agent, `${AGENT}endpoint_dial_failure_total`), { timeout: 1 });

    const lost = assert.rejects(dial(scope, server, 'connect', hole), /50[23] /);
    await dialsPend(server.program, 1, lost);
    await agent.kill();
    await lost;
    assert.deepEqual(await failures(server), { error_response: 1, backend_close: 1 });
    const refusing = Object.entries(await samples(server.program, 'isthmus_dial_errors_total'));
    assert.deepEqual(Object.fromEntries(refusing), { connection_timeout: 1, connection_terminated: 1 });
  }),
);

test(
  'an agent counts failed connections to servers',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const agent = await startAgent(scope, trust, await freePort());
    const failed = () => samples(agent, `${AGENT}server_connection_failure_count`);
    await eventually(async () => assert.ok(((await failed()).to_server ?? 0) >= 2));
    assert.equal((await failed()).from_server, undefined);
    assert.equal(await value(agent, `${AGENT}open_server_connections`), 0);

    const hub = await packetHub(scope, trust, 'one');
    const other = await startAgent(scope, trust, hub.port);
    await hub.agent();
    await eventually(async () => assert.equal(await value(other, `${AGENT}open_server_connections`), 1));
    await hub[Symbol.asyncDispose]();
    await eventually(async () => {
      assert.equal((await samples(other, `${AGENT}server_connection_failure_count`)).from_server, 1);
      assert.equal(await value(other, `${AGENT}open_server_connections`), 0);
    });
  }),
);
