import assert from 'node:assert/strict';
import test from 'node:test';
import { dialsPend } from '../edges/rig.ts';
import {
  agentPackets,
  connectThrough,
  echo,
  eventually,
  newTrust,
  type PacketStream,
  packetHub,
  packetsThrough,
  randomId,
  refused,
  relayTo,
  type Scope,
  scoped,
  startAgent,
  startServer,
  tunnelThrough,
  until,
} from '../harness/index.ts';
import { familiesAre, samples, value } from './families.ts';
import { kubeApi } from './kube-api.ts';

const SERVER = 'konnectivity_network_proxy_server_';
const AGENT = 'konnectivity_network_proxy_agent_';
const DESTINATION = '10.0.0.1:443';

/** Answers an agent's next dial. */
async function answer(agent: PacketStream, connectID: bigint, error = ''): Promise<void> {
  const { random } = await agent.expect('DIAL_REQ');
  agent.send({ type: 'DIAL_RSP', random, connectID: error === '' ? connectID : 0n, error });
}

/** Starts a dial, and waits until it has reached the agent, which does not answer. */
async function pending(scope: Scope, via: Parameters<typeof packetsThrough>[1], agent: PacketStream) {
  const caller = packetsThrough(scope, via);
  const random = randomId();
  caller.send({ type: 'DIAL_REQ', protocol: 'tcp', address: DESTINATION, random });
  await agent.expect('DIAL_REQ');
  return { caller, random };
}

test(
  'every upstream family shows what happened at a server',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await kubeApi(scope, trust);
    api.put('konnectivity-proxy-server-dead', 3600);
    const leases = { kubeconfig: api.kubeconfig, 'enable-lease-controller': true };
    const timeouts = { 'backend-dial-timeout': '5s', 'dial-park-timeout': '50ms' };
    const { program, agentPort, grpc, connect } = await startServer(scope, trust, { ...leases, ...timeouts });

    await connectThrough(scope, { via: connect, destination: DESTINATION });
    const identity = await trust.agents.client('agent');
    const relay = await relayTo(scope, agentPort);
    const agent = agentPackets(scope, { port: relay.port, ca: trust.agents.cert, identity }, { agentid: 'a1' });
    await program.waitReady();

    // A tunnel that closes normally, and one that stays open.
    const caller = packetsThrough(scope, grpc);
    const [dialled] = await Promise.all([caller.dial(DESTINATION), answer(agent, 1n)]);
    caller.send({ type: 'DATA', connectID: dialled.connectID, error: '', data: Buffer.from('ping') });
    const { data } = await agent.expect('DATA');
    agent.send({ type: 'DATA', connectID: 1n, error: '', data });
    await caller.expect('DATA');
    caller.send({ type: 'CLOSE_REQ', connectID: dialled.connectID });
    await agent.expect('CLOSE_REQ');
    agent.send({ type: 'CLOSE_RSP', connectID: 1n, error: '' });
    await caller.expect('CLOSE_RSP');
    await Promise.all([tunnelThrough(scope, { via: connect, destination: DESTINATION }), answer(agent, 2n)]);

    // A refusal, an answer that nobody asked for, a dial without an answer, and a caller that gives up.
    await Promise.all([packetsThrough(scope, grpc).dial(DESTINATION), answer(agent, 3n, 'refused')]);
    agent.send({ type: 'DIAL_RSP', random: randomId(), connectID: 4n, error: '' });
    await agent.expect('CLOSE_REQ');
    await (await pending(scope, grpc, agent)).caller.expect('DIAL_RSP');
    await agent.expect('DIAL_CLS');
    const { caller: leaving, random } = await pending(scope, grpc, agent);
    leaving.send({ type: 'DIAL_CLS', random });
    await agent.expect('DIAL_CLS');

    // A dead lease is listed until nobody has renewed it for its whole duration.
    const culled = async () => [...(await program.metric(`${SERVER}culled_leases_count`)).values()][0] === 1;
    await until(culled, { what: 'the dead lease to be deleted' });
    const lists = [...(await program.metric(`${SERVER}lease_list_total`)).values()][0] as number;
    assert.ok(lists >= 1);
    await familiesAre(program, SERVER, {
      connection_duration_seconds: { observations: { '': 1 } },
      culled_leases_count: { '': 1 },
      dial_duration_seconds: { observations: { '': 2 } },
      dial_failure_count: {
        no_agent: 1,
        error_response: 1,
        unrecognized_response: 1,
        backend_dial_timeout: 1,
        frontend_close: 1,
      },
      established_connections: { '': 1 },
      frontend_write_duration_seconds: { observations: { '': 1 } },
      full_receive_channels: { Proxy: 0, Connect: 0 },
      grpc_connections: { Proxy: 0, Connect: 1 },
      http_connections: { '': 1 },
      lease_delete_latency_seconds: { observations: { '200': 1 } },
      lease_delete_total: { '200 ': 1 },
      lease_list_latency_seconds: { observations: { '200': lists } },
      lease_list_total: { '200 ': lists },
      pending_backend_dials: { '': 0 },
      ready_backend_connections: { '': 1 },
      ready_backends: { default: 1 },
      stream_errors_total: {},
      stream_packets_total: {
        'DIAL_REQ from_client': 4,
        'DATA from_client': 1,
        'CLOSE_REQ from_client': 1,
        'DIAL_CLS from_client': 1,
        'DIAL_RSP to_client': 3,
        'DATA to_client': 1,
        'CLOSE_RSP to_client': 1,
        'DIAL_RSP from_agent': 4,
        'DATA from_agent': 1,
        'CLOSE_RSP from_agent': 1,
        // The server cancels the dial without an answer and the abandoned one, and closes the tunnel that nobody asked for.
        'DIAL_REQ to_agent': 5,
        'DATA to_agent': 1,
        'CLOSE_REQ to_agent': 2,
        'DIAL_CLS to_agent': 2,
      },
    });

    // An agent that stops reading and then disappears with a dial pending.
    const flooding = packetsThrough(scope, grpc);
    const [flood] = await Promise.all([flooding.dial(DESTINATION), answer(agent, 6n)]);
    agent.stream.pause();
    for (let i = 0; i < 64; i++) {
      flooding.send({ type: 'DATA', connectID: flood.connectID, error: '', data: Buffer.alloc(1 << 16) });
    }
    const shown = (family: string) => samples(program, SERVER + family);
    await eventually(async () => assert.deepEqual(await shown('full_receive_channels'), { Proxy: 1, Connect: 0 }));
    // Only now, because it gives up after 5 s, and a flood on a busy machine takes longer.
    await dialsPend(program, 1, packetsThrough(scope, grpc).dial(DESTINATION));
    relay.drop();
    await eventually(async () => {
      assert.deepEqual(await shown('stream_errors_total'), { 'Canceled Unknown from_agent': 1 });
      assert.deepEqual(await shown('full_receive_channels'), { Proxy: 0, Connect: 0 });
      assert.equal((await shown('dial_failure_count')).backend_close, 1);
      assert.deepEqual(await shown('ready_backends'), { default: 0 });
      assert.deepEqual(await shown('grpc_connections'), { Proxy: 0, Connect: 0 });
      assert.equal(await value(program, `${SERVER}established_connections`), 0);
    });
  }),
);

test(
  'every upstream family shows what happened at an agent',
  scoped(async (scope) => {
    const trust = await newTrust(scope);
    const api = await kubeApi(scope, trust);
    const renew = () => api.put('konnectivity-proxy-server-one', 0);
    renew();
    api.put('konnectivity-proxy-server-dead', 3600);
    // As servers do: a watch that is silent for a minute begins anew, and a busy machine takes as long for this test.
    const renewing = setInterval(renew, 10_000);
    scope.defer(() => clearInterval(renewing));
    const hub = await packetHub(scope, trust, 'one');
    const leases = { kubeconfig: api.kubeconfig, 'count-server-leases': true };
    const program = await startAgent(scope, trust, hub.port, leases);
    const server = await hub.agent();

    const dial = async (address: string) => {
      const random = randomId();
      server.send({ type: 'DIAL_REQ', protocol: 'tcp', address, random });
      return server.expect('DIAL_RSP', (answer) => answer.random === random);
    };
    const { authority } = await echo(scope);
    const [{ connectID }] = [await dial(authority), await dial(authority), await dial(await refused())];
    server.send({ type: 'DATA', connectID, error: '', data: Buffer.from('ping') });
    await server.expect('DATA');
    server.send({ type: 'CLOSE_REQ', connectID });
    await server.expect('CLOSE_RSP');

    await familiesAre(program, AGENT, {
      dial_duration_seconds: { observations: { '': 2 } },
      endpoint_dial_failure_total: { unknown: 1 },
      known_server_count: { '': 1 },
      lease_list_latency_seconds: { observations: { '200': 1 } },
      lease_lists_total: { '200 ': 1 },
      lease_watches_total: { '200 ': 1 },
      open_endpoint_connections: { '': 1 },
      open_server_connections: { '': 1 },
      server_connection_failure_count: {},
      stream_errors_total: {},
      stream_packets_total: {
        'DIAL_REQ to_agent': 3,
        'DATA to_agent': 1,
        'CLOSE_REQ to_agent': 1,
        'DIAL_RSP from_agent': 3,
        'DATA from_agent': 1,
        'CLOSE_RSP from_agent': 1,
      },
    });

    await hub[Symbol.asyncDispose]();
    await eventually(async () => {
      // Go's client reports Unavailable. On Deno, grpc-js reports the reset of the stream instead of the end of the connection.
      const errors = Object.entries(await samples(program, `${AGENT}stream_errors_total`));
      assert.deepEqual(
        errors.map(([, count]) => count),
        [1],
      );
      assert.match(errors[0]?.[0] ?? '', /^(Unavailable|Canceled) Unknown to_agent$/);
      const failures = await samples(program, `${AGENT}server_connection_failure_count`);
      assert.equal(failures.from_server, 1);
      assert.ok((failures.to_server ?? 0) > 0);
      assert.equal(await value(program, `${AGENT}open_server_connections`), 0);
      assert.equal(await value(program, `${AGENT}open_endpoint_connections`), 0);
    });
  }),
);
