import { until } from '@isthmus/runtime/testing';
import { freePort } from './free-port.ts';
import { inStep, type RedisGroup, type RedisGroupOptions, STEADY_MS, starting, urlOf } from './redis-group.ts';
import { planeUserArgs, type RedisServer } from './redis-server.ts';

const SLOTS = 16_384;
const PRIMARIES = 3;
/** How long a node may be silent before the others consider it dead, in milliseconds. */
const NODE_TIMEOUT_MS = 500;

interface Node {
  readonly bus: number;
  readonly server: RedisServer;
}

/** Starts a Cluster of three primaries with a replica each. */
export function startCluster({ tls, steady }: RedisGroupOptions = {}): Promise<RedisGroup> {
  return starting(async (start) => {
    // Another process may have taken the port of the bus between the check and the bind.
    const node = (): Promise<Node> => newNode().catch(newNode);
    const newNode = async () => {
      const bus = await freePort();
      const cluster = [
        '--cluster-enabled',
        'yes',
        '--cluster-port',
        `${bus}`,
        '--cluster-node-timeout',
        `${NODE_TIMEOUT_MS}`,
      ];
      // A replica may take over from its primary however long their link was down.
      const always = ['--cluster-replica-validity-factor', '0'];
      const args = [...cluster, ...always, ...(tls ? ['--tls-cluster', 'yes'] : []), ...planeUserArgs];
      return { bus, server: await start({ ...(tls && { tls }), args }) };
    };
    const nodes = await Promise.all(Array.from({ length: 2 * PRIMARIES }, node));
    const servers = nodes.map(({ server }) => server);
    const [primaries, replicas] = [servers.slice(0, PRIMARIES), servers.slice(PRIMARIES)];
    for (const [index, server] of servers.entries()) await does(server, `CLUSTER SET-CONFIG-EPOCH ${index + 1}`);
    const share = Math.ceil(SLOTS / PRIMARIES);
    for (const [index, primary] of primaries.entries()) {
      await does(primary, `CLUSTER ADDSLOTSRANGE ${index * share} ${Math.min(SLOTS, (index + 1) * share) - 1}`);
    }
    await until(() => acquainted(nodes), 'nodes that know each other');
    for (const [index, replica] of replicas.entries()) {
      await does(replica, `CLUSTER REPLICATE ${await primaries[index]?.command('CLUSTER MYID')}`);
    }
    await until(() => everyone(servers, 'cluster_state:ok'), 'a Cluster that serves');
    await until(() => inStep(servers, replicas.length), 'replicas in step with their primaries');
    // Set only now: the shorter the timeout, the faster news spreads among the nodes.
    if (steady) for (const server of servers) await does(server, `CONFIG SET cluster-node-timeout ${STEADY_MS}`);
    return { url: urlOf('cluster', servers, tls), servers, inCharge: (key) => ownerAmong(servers, key) };
  });
}

async function does(server: RedisServer | undefined, line: string): Promise<void> {
  const answer = await server?.command(line);
  if (answer !== '+OK') throw new Error(`${line}: ${answer}`);
}

async function everyone(servers: readonly RedisServer[], fact: string): Promise<boolean> {
  const infos = await Promise.all(servers.map((server) => server.command('CLUSTER INFO')));
  return infos.every((info) => info.includes(fact));
}

/**
 * Lets the first node meet those with which it has no complete handshake. A node forgets another whose handshake takes longer than a
 * second, as on a busy machine.
 * @returns whether all know each other
 */
async function acquainted(nodes: readonly Node[]): Promise<boolean> {
  const known = await Promise.all(nodes.map(portsKnownTo));
  const [first] = nodes as [Node];
  for (const [index, { bus, server }] of nodes.entries()) {
    const both = known[0]?.has(server.port) && known[index]?.has(first.server.port);
    if (!both) await does(first.server, `CLUSTER MEET 127.0.0.1 ${server.port} ${bus}`);
  }
  return known.every(({ size }) => size === nodes.length);
}

/** Returns the ports of the nodes with which a node has completed its handshake, and its own. */
async function portsKnownTo({ server }: Node): Promise<Set<number>> {
  // ID ADDRESS:PORT@BUS FLAGS ...
  const lines = (await server.command('CLUSTER NODES')).matchAll(/^\S+ \S*:(\d+)@\S+ (?!\S*handshake)/gm);
  return new Set(Array.from(lines, ([, port]) => Number(port)));
}

/** Nodes that are not in charge redirect the client, or say that the Cluster is down. */
async function ownerAmong(servers: readonly RedisServer[], key: string): Promise<RedisServer | undefined> {
  for (const server of servers) {
    if (server.answers && (await server.command(`EXISTS ${key}`)).startsWith(':')) return server;
  }
  return undefined;
}
