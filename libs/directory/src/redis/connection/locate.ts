import { within } from '@isthmus/runtime';
import type { Redis } from 'ioredis';
import type { Credentials, HostPort, RedisAddress } from './address.ts';

/** Returns the server that is in charge now. Rejects if no server knows it. */
export type Locate = () => Promise<HostPort>;

/** Returns a client of one server that neither connects by itself nor retries. */
export type Connect = (server: HostPort, user: Credentials) => Redis;

/** Sends a few commands to one server over their own connection, and returns the answers. */
type Ask = (server: HostPort, user: Credentials, ...commands: readonly (readonly string[])[]) => Promise<unknown[]>;

/**
 * How long to wait for an answer before asking the next server too, in milliseconds. If all servers asked so far failed, the next one
 * is asked at once.
 */
const STAGGER_MS = 200;

/**
 * Returns the lookup of a plane's server. All keys of a plane are in one slot, so even in a Cluster there is one server to talk to.
 * Each connection looks it up again. A connection is dropped when its server says that it is not, or no longer, in charge.
 */
export function locator(address: RedisAddress, keyOfPlane: string, connect: Connect): Locate {
  const ask = asker(connect);
  switch (address.kind) {
    case 'standalone':
      return async () => address.seeds[0] as HostPort;
    case 'sentinel':
      return () => firstOf(shuffled(address.seeds), (sentinel) => primaryOf(address, sentinel, ask));
    case 'cluster':
      return ownerLocator(address, keyOfPlane, ask);
  }
}

async function primaryOf(address: RedisAddress, sentinel: HostPort, ask: Ask): Promise<HostPort> {
  const { primary, sentinelUser, user } = address;
  const [answer] = await ask(sentinel, sentinelUser, ['SENTINEL', 'get-master-addr-by-name', primary]);
  if (!Array.isArray(answer))
    throw new Error(`Sentinel ${sentinel.host}:${sentinel.port} does not know the primary ${primary}`);
  const [host, port] = answer as [string, string];
  const server = { host, port: Number(port) };
  // A Sentinel that learns late may still name a server that hangs. The PING then gets no answer, so another Sentinel's answer wins.
  await ask(server, user, ['PING']);
  return server;
}

/** First slot, last slot, then the servers of that range, the one in charge first. Each server is host, port and more. */
type SlotRange = [number, number, ...[string | null, number, ...unknown[]][]];

function ownerLocator(address: RedisAddress, key: string, ask: Ask): Locate {
  const { seeds } = address;
  // The seeds may be gone one day, so the nodes that the Cluster last named are asked first.
  let learnt: readonly HostPort[] = [];
  const ownerOf = async (node: HostPort) => {
    const { user } = address;
    const [slot, ranges] = (await ask(node, user, ['CLUSTER', 'KEYSLOT', key], ['CLUSTER', 'SLOTS'])) as [
      number,
      SlotRange[],
    ];
    const toNode = ([host, port]: readonly [string | null, number, ...unknown[]]) => ({
      host: host || node.host,
      port,
    });
    const servers = ranges.flatMap(([, , ...members]) => members.map(toNode));
    const owner = ranges.find(([from, to]) => from <= slot && slot <= to)?.[2];
    if (!owner) throw new Error(`no node of the Cluster serves slot ${slot}`);
    learnt = servers.filter(
      ({ host, port }, index) => index === servers.findIndex((s) => s.host === host && s.port === port),
    );
    const server = toNode(owner);
    await ask(server, user, ['PING']);
    return server;
  };
  return () => firstOf([...shuffled(learnt), ...shuffled(seeds)], ownerOf);
}

/** Returns the first good answer. A server that hangs delays the others only briefly. */
async function firstOf(servers: readonly HostPort[], ask: (server: HostPort) => Promise<HostPort>): Promise<HostPort> {
  const answers: Promise<HostPort>[] = [];
  const good = () => Promise.any(answers);
  for (const each of servers) {
    answers.push(ask(each));
    const first = good().catch(() => undefined);
    const server = (await within(first, STAGGER_MS)) && (await first);
    if (server) return server;
  }
  return good().catch((error: AggregateError) => {
    throw error.errors[0];
  });
}

/** Each client asks in a random order, so that no server with an outdated view misleads a client forever. */
function shuffled<T>(list: readonly T[]): T[] {
  return list
    .map((item) => ({ item, rank: Math.random() }))
    .sort((a, b) => a.rank - b.rank)
    .map(({ item }) => item);
}

function asker(connect: Connect): Ask {
  return async (server, user, ...commands) => {
    const client = connect(server, user);
    client.on('error', () => undefined);
    try {
      await client.connect();
      return await Promise.all(commands.map(([name, ...rest]) => client.call(name as string, ...rest)));
    } finally {
      client.disconnect();
    }
  };
}
