import assert from 'node:assert/strict';
import test from 'node:test';
import { adminClient } from '@isthmus/admin/testing/client';
import {
  allInOne,
  type Destination,
  echo,
  freePort,
  open,
  openDescriptors,
  type Program,
  packetsThrough,
  refused,
  residentBytes,
  Scope,
  SLOW_TESTS,
  scoped,
  until,
} from '../harness/index.ts';
import { abandoned, dial, type Edge, echoes, edgesOf, endpointsAre, metricIs, tunnelsAre } from './rig.ts';

/** Each way of dialling passes at each edge: 54 dials. What 300 leave behind shows in counts and descriptors, memory only after 6,000. */
const DIALS = SLOW_TESTS ? 6000 : 300;
const CONCURRENCY = 20;

/**
 * Until this many dials, the caches and pools of the processes still grow, and so does their heap: V8 collects all of it only when it is
 * four times what it holds (`heapGrowingPercent`). From 400 dials on, 3,000 that left nothing behind took a server 77 to 95 MiB.
 */
const WARM_UP = SLOW_TESTS ? 6000 : 100;

/** Descriptors that may open or close without a tunnel: for a scrape of the metrics, or a resolver's socket. */
const FEW = 5;

/**
 * How much a process may grow, in bytes. Measured: 0 to 23 MiB, depending on where its heap stands between two collections. Four of the
 * six ways always open a tunnel; where those leaked, on purpose, a server grew by 97 MiB.
 */
const GROWTH = 48 * 1024 * 1024;

const DIALLED = 'konnectivity_network_proxy_server_pending_backend_dials';

/** What one dial does. Dials take turns, so that each way happens at every edge. */
const WAYS: readonly ((scope: Scope, edge: Edge, target: string, closed: string) => Promise<unknown>)[] = [
  closes,
  closes,
  closes,
  fails,
  abandons,
  vanishes,
];

test(
  `${DIALS} dials that close, fail, are abandoned or vanish leave nothing behind`,
  scoped(async (scope) => {
    const adminPort = await freePort();
    const { server, agents } = await allInOne(scope, { serverFlags: { 'admin-port': adminPort } });
    const programs = [server.program, ...agents];
    const target = await echo(scope);
    const closed = await refused();
    const dialAll = (dials: number) => spread(dials, (index) => one(index, edgesOf(server), target.authority, closed));

    using connection = adminClient(`127.0.0.1:${adminPort}`);
    await dialAll(WARM_UP);
    // The first question loads what answers it, which from sources takes 30 MiB.
    await connection.admin.listTunnels({});
    await quiet(target, programs);
    const before = programs.map(holds);
    await dialAll(DIALS);
    await quiet(target, programs);
    assert.deepEqual((await connection.admin.listTunnels({})).tunnels, []);
    for (const [index, program] of programs.entries()) {
      const { descriptors, memory } = before[index] as Held;
      const settled = () => holds(program).descriptors <= descriptors + FEW;
      const what = () =>
        `${program.name} to hold ${descriptors} descriptors again; it holds ${holds(program).descriptors}`;
      await until(settled, { what });
      const grown = holds(program).memory - memory;
      assert.ok(grown < GROWTH, `${program.name} grew by ${grown >> 20} MiB`);
    }
    assert.ok(target.accepted > DIALS / 2);
  }),
);

/** Makes one dial in a scope of its own. Most go over CONNECT on the unix socket, which is cheapest for the test itself. */
async function one(index: number, edges: readonly Edge[], target: string, closed: string): Promise<void> {
  await using scope = new Scope();
  const [grpcUds, grpcTls, connectUds, connectTls] = edges as [Edge, Edge, Edge, Edge];
  const order = [connectUds, grpcUds, connectUds, connectTls, connectUds, grpcUds, connectUds, grpcTls, connectUds];
  const edge = order[index % order.length] ?? connectUds;
  const way = WAYS[Math.floor(index / order.length) % WAYS.length] ?? closes;
  await way(scope, edge, target, closed);
}

async function closes(scope: Scope, edge: Edge, target: string): Promise<void> {
  const tunnel = await dial(scope, edge, target);
  assert.ok(await echoes(tunnel, edge.name));
  tunnel.end();
}

async function fails(scope: Scope, edge: Edge, _target: string, closed: string): Promise<void> {
  await assert.rejects(dial(scope, edge, closed), /connection refused/);
}

/** Sends a dial, and leaves without waiting for the answer. */
async function abandons(scope: Scope, { protocol, via }: Edge, target: string): Promise<void> {
  if (protocol === 'grpc') {
    const packets = packetsThrough(scope, via);
    await new Promise((sent) =>
      packets.stream.write({ type: 'DIAL_REQ', protocol: 'tcp', address: target, random: 1n }, sent),
    );
    return;
  }
  const socket = await open(scope, via);
  await new Promise((sent) => socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`, sent));
}

/** Leaves in the middle of a tunnel. */
async function vanishes(scope: Scope, edge: Edge, target: string): Promise<void> {
  const tunnel = await dial(scope, edge, target);
  tunnel.write('x'.repeat(100_000));
  tunnel.destroy();
}

/** Runs `run` `count` times, a few at a time. */
async function spread(count: number, run: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) await run(next++);
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, worker));
}

/** Waits until no dial, tunnel or connection is left anywhere. */
async function quiet(target: Destination, [server, ...agents]: readonly Program[]): Promise<void> {
  await metricIs(server as Program, DIALLED, 0);
  await tunnelsAre(server as Program, 0);
  for (const agent of agents) await endpointsAre(agent, 0);
  await abandoned(target);
}

interface Held {
  readonly descriptors: number;
  /** Resident, in bytes. */
  readonly memory: number;
}

function holds({ pid }: Program): Held {
  return { descriptors: openDescriptors(pid), memory: residentBytes(pid) };
}
