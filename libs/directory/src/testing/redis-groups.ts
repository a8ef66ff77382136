import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { until } from '@isthmus/runtime/testing';
import { freePort } from './free-port.ts';
import {
  PLANE_USER,
  planeUserArgs,
  type RedisServer,
  type RedisServerOptions,
  type RedisTls,
  startRedis,
  tlsArgs,
} from './redis-server.ts';

/** Several servers that hold the same data, with one in charge of a key. */
export interface RedisGroup {
  /** Contains the name and password of PLANE_USER. */
  readonly url: string;
  readonly servers: readonly RedisServer[];
  /** Returns the server that accepts writes to a key now, if any. */
  inCharge(key: string): Promise<RedisServer | undefined>;
  stop(): Promise<void>;
}

interface RedisGroupOptions {
  readonly tls?: RedisTls;
  /** For tests in which no server fails: a server that is slow on a busy machine is not considered dead. */
  readonly steady?: boolean;
}

/** How long a server of a steady group may be silent, in milliseconds. */
const STEADY_MS = 60_000;

type Start = (options: RedisServerOptions) => Promise<RedisServer>;

/** Builds a group of servers. All of them stop with the group, or at once if it cannot be built. */
async function starting(build: (start: Start) => Promise<Omit<RedisGroup, 'stop'>>): Promise<RedisGroup> {
  const started: Promise<RedisServer>[] = [];
  const stop = async () => {
    const servers = await Promise.allSettled(started);
    await Promise.all(servers.map((server) => server.status === 'fulfilled' && server.value.stop()));
  };
  try {
    const group = await build((options) => {
      const server = startRedis(options);
      started.push(server);
      return server;
    });
    return { ...group, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Whether so many are replicas in step with their primaries. On a busy machine, any of them may have taken over from its primary already. */
async function inStep(servers: readonly RedisServer[], count: number): Promise<boolean> {
  const infos = await Promise.all(servers.map((server) => server.command('INFO replication')));
  return infos.filter((info) => info.includes('master_link_status:up')).length === count;
}

function urlOf(kind: 'sentinel' | 'cluster', seeds: readonly RedisServer[], tls: RedisTls | undefined): string {
  const { name, password } = PLANE_USER;
  const nodes = seeds.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return `${tls ? 'rediss' : 'redis'}+${kind}://${name}:${password}@${nodes}`;
}

/** What the Sentinels call the primary. */
const NAME = 'main';
const SENTINELS = 3;
/** How long a server may be silent before the Sentinels consider it dead, in milliseconds. */
const DOWN_AFTER_MS = 500;

export interface SentinelOptions extends RedisGroupOptions {
  /** Password that clients must send to the Sentinels themselves. */
  readonly password?: string;
}

/** Starts a primary with a replica, and three Sentinels that know each other from the start. */
export function startSentinels({ tls, password = '', steady }: SentinelOptions = {}): Promise<RedisGroup> {
  return starting(async (start) => {
    const common = tls ? { tls } : {};
    const primary = await start({ ...common, args: planeUserArgs });
    const replica = await start({ ...common, args: [...planeUserArgs, '--replicaof', '127.0.0.1', `${primary.port}`] });
    const all: Sentinel[] = [];
    for (let n = 0; n < SENTINELS; n++) all.push({ id: randomBytes(20).toString('hex'), port: await freePort() });
    const downAfterMs = steady ? STEADY_MS : DOWN_AFTER_MS;
    const settings = { primary, replica, all, password, tls, downAfterMs };
    const sentinels = await Promise.all(
      all.map(({ id, port }) => {
        return start({ ...common, port, password, config: configOf(id, settings), args: ['--sentinel'] });
      }),
    );
    await until(() => inStep([primary, replica], 1), 'a replica in step with its primary');
    const query = password && `?sentinel-password=${password}`;
    return {
      url: `${urlOf('sentinel', sentinels, tls)}/${NAME}${query}`,
      servers: [primary, replica],
      inCharge: () => primaryAmong([primary, replica]),
    };
  });
}

interface Sentinel {
  readonly id: string;
  readonly port: number;
}

interface Settings {
  readonly primary: RedisServer;
  readonly replica: RedisServer;
  readonly all: readonly Sentinel[];
  readonly password: string;
  readonly tls: RedisTls | undefined;
  readonly downAfterMs: number;
}

function configOf(own: string, { primary, replica, all, password, tls, downAfterMs }: Settings) {
  return async (port: number, directory: string) => {
    const others = all.filter(({ id }) => id !== own);
    const lines = [
      'bind 127.0.0.1',
      ...(tls ? ['port 0', `tls-port ${port}`, ...directives(tlsArgs(tls))] : [`port ${port}`]),
      `dir ${directory}`,
      ...(password ? [`requirepass ${password}`, `sentinel sentinel-pass ${password}`] : []),
      `sentinel myid ${own}`,
      `sentinel monitor ${NAME} 127.0.0.1 ${primary.port} 2`,
      `sentinel down-after-milliseconds ${NAME} ${downAfterMs}`,
      `sentinel failover-timeout ${NAME} 2000`,
      `sentinel known-replica ${NAME} 127.0.0.1 ${replica.port}`,
      ...others.map(({ id, port: theirs }) => `sentinel known-sentinel ${NAME} 127.0.0.1 ${theirs} ${id}`),
    ];
    const file = join(directory, 'sentinel.conf');
    await writeFile(file, `${lines.join('\n')}\n`);
    return file;
  };
}

/** Converts `--name value` arguments to lines of a file. */
function directives(args: readonly string[]): string[] {
  return args
    .join(' ')
    .split('--')
    .map((line) => line.trim())
    .filter(Boolean);
}

async function primaryAmong(servers: readonly RedisServer[]): Promise<RedisServer | undefined> {
  for (const server of servers) {
    if (server.answers && (await server.command('INFO replication')).includes('role:master')) return server;
  }
  return undefined;
}

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
