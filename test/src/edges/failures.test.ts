import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { status as grpcStatus } from '@grpc/grpc-js';
import {
  allInOne,
  blackHole,
  connectThrough,
  echo,
  eventually,
  newTrust,
  open,
  type Program,
  packetsThrough,
  refused,
  scoped,
  sharedByFile,
  split,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { assertRefused, dial, dialsPend, type Edge, echoes, edgesOf, refusals } from './rig.ts';

/** For tests that leave it as it was. */
const shared = sharedByFile(allInOne);

/** One for each protocol. */
const DIALS = 2;

test(
  'refused, unreachable and unknown destinations give different errors, on both protocols',
  scoped(async (scope) => {
    const { server } = await shared();
    const closed = await refused();
    assertRefused(
      await refusals(scope, server, closed),
      502,
      'connection_refused',
      new RegExp(`dial tcp ${closed}: connect: connection refused`),
    );
    // TCP to a broadcast address: the kernel has no route for it, whatever the machine's network.
    const unreachable = await refusals(scope, server, '127.255.255.255:80');
    assertRefused(unreachable, 502, 'destination_ip_unroutable', /connect: network is unreachable/);
    const unknown = await refusals(scope, server, 'does-not-exist.invalid:80');
    assertRefused(unknown, 502, 'dns_error', /dial tcp: lookup does-not-exist\.invalid( on \S+:53)?: /);
  }),
);

test(
  'a destination that does not answer is a timeout, on both protocols',
  scoped(async (scope) => {
    const { server } = await shared();
    const silent = await blackHole(scope);
    const timeout = new RegExp(`dial tcp ${silent}: i/o timeout`);
    assertRefused(await refusals(scope, server, silent), 504, 'connection_timeout', timeout);
  }),
);

test(
  'a dial fails when there is no agent, on both protocols',
  scoped(async (scope) => {
    const server = await startServer(scope, await newTrust(scope));
    assertRefused(await refusals(scope, server, '127.0.0.1:1'), 503, 'destination_unavailable', /No agent available/);
  }),
);

test(
  'a pending dial whose agent is killed fails if no other comes in time, on both protocols',
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const pending = refusals(scope, server, await blackHole(scope));
    await dialsPend(server.program, DIALS, pending);
    await (agents[0] as Program).kill();
    assertRefused(await pending, 502, 'connection_terminated', /agent agent-0: /);
  }),
);

test(
  'a pending dial whose only agent is killed goes through the next one, on both protocols',
  scoped(async (scope) => {
    const { trust, server, agents } = await allInOne(scope, { serverFlags: { 'dial-park-timeout': '30s' } });
    const [agent] = agents as [Program];
    const target = await echo(scope);
    // It answers nothing any more.
    agent.signal('SIGSTOP');
    const edges = edgesOf(server).filter(({ via }) => 'uds' in via);
    const pending = Promise.all(edges.map((edge) => dial(scope, edge, target.authority)));
    await dialsPend(server.program, edges.length, pending);
    await agent.kill();
    await startAgent(scope, trust, server.agentPort, { 'agent-id': 'agent-1' });
    for (const tunnel of await pending) assert.ok(await echoes(tunnel, 'x'));
  }),
);

test(
  'a pending dial whose hub is killed fails if no other hub comes in time, on both protocols',
  scoped(async (scope) => {
    const { gateways, hubs } = await split(scope, { gateways: 1, hubs: 1, agents: 1 });
    const [gateway] = gateways as [(typeof gateways)[number]];
    const target = await echo(scope);
    const connect = edgesOf(gateway).find(({ name }) => name === 'CONNECT over UDS') as Edge;
    await until(async () => echoes(await dial(scope, connect, target.authority), 'x'), {
      what: 'a dial through the plane',
    });
    const pending = refusals(scope, gateway, await blackHole(scope));
    await dialsPend(gateway.program, DIALS, pending);
    await (hubs[0] as (typeof hubs)[number]).program.kill();
    assertRefused(await pending, 502, 'connection_terminated', /hub .*: /);
  }),
);

test(
  'a server that shuts down refuses new dials on both protocols, and lets running tunnels finish',
  scoped(async (scope) => {
    const { server } = await allInOne(scope, { serverFlags: { 'graceful-shutdown-timeout': '1m' } });
    const target = await echo(scope);
    const tunnels = await Promise.all(edgesOf(server).map((edge) => dial(scope, edge, target.authority)));
    server.program.signal('SIGTERM');
    await server.program.waitForLog(({ msg }) => msg === 'stopping', { what: 'the server to stop' });
    // The server rejects a gRPC caller before its stream begins, so that the caller's library connects elsewhere.
    // Deno 2.9's own HTTP/2 client loops forever on a GOAWAY that arrives before its first stream is answered.
    if (!('Deno' in globalThis)) {
      const turnedAway = await packetsThrough(scope, server.mtls).ended();
      assert.equal(turnedAway.code, grpcStatus.UNAVAILABLE, turnedAway.details);
    }
    const destination = target.authority;
    const dialled = () => connectThrough(scope, { via: server.mtls, destination });
    // The server still serves callers from the kernel's queue for a moment.
    const answer = await until(
      async () => {
        const each = await dialled();
        if (each.status === 200) each.socket.destroy();
        return each.status === 503 && each;
      },
      { what: 'a refusal' },
    );
    assert.equal(answer.headers['retry-after'], '0');
    assert.match(answer.reason, /proxy is shutting down/);
    // A caller on this machine that finds no socket waits for the next server.
    await assert.rejects(connectThrough(scope, { via: server.connect, destination }), { code: 'ENOENT' });
    for (const tunnel of tunnels) {
      assert.ok(await echoes(tunnel, 'still running'));
      tunnel.end();
    }
    assert.deepEqual(await server.program.ended(), { code: 0, signal: null });
    assert.deepEqual(target.failures, []);
  }),
);

test(
  "a caller that vanishes while its dial is pending ends the agent's attempt, on both protocols",
  scoped(async (scope) => {
    const { server, agents } = await allInOne(scope);
    const silent = await blackHole(scope);
    const before = attempts(silent);
    const packets = packetsThrough(scope, server.grpc);
    packets.send({ type: 'DIAL_REQ', protocol: 'tcp', address: silent, random: 1n });
    const socket = await open(scope, server.connect);
    socket.write(`CONNECT ${silent} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
    await until(() => attempts(silent) === before + DIALS, { what: 'the agent to connect' });
    packets.stream.cancel();
    socket.destroy();
    await until(() => attempts(silent) === before, { what: 'the end of its attempts' });
    await eventually(async () => {
      const samples = await server.program.metric('konnectivity_network_proxy_server_dial_failure_count');
      assert.equal(samples.get('{reason="frontend_close"}'), DIALS);
    });
    // The agent's own deadline of 5 s would also end them.
    assert.ok((agents[0] as Program).lines.every((line) => !line.includes('i/o timeout')));
  }),
);

/** Counts the connections to `127.0.0.1:port` that are not answered yet: state 2 in proc(5)'s tcp table is SYN_SENT. */
function attempts(authority: string): number {
  const port = Number(authority.split(':').at(-1)).toString(16).toUpperCase().padStart(4, '0');
  const rows = readFileSync('/proc/net/tcp', 'latin1').split('\n');
  return rows.filter((row) => row.includes(` 0100007F:${port} 02 `)).length;
}
