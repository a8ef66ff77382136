import { PLANE_USER, type RedisServer, type RedisServerOptions, type RedisTls, startRedis } from './redis-server.ts';

/** Several servers that hold the same data, with one in charge of a key. */
export interface RedisGroup {
  /** Contains the name and password of PLANE_USER. */
  readonly url: string;
  readonly servers: readonly RedisServer[];
  /** Returns the server that accepts writes to a key now, if any. */
  inCharge(key: string): Promise<RedisServer | undefined>;
  stop(): Promise<void>;
}

export interface RedisGroupOptions {
  readonly tls?: RedisTls;
  /** For tests in which no server fails: a server that is slow on a busy machine is not considered dead. */
  readonly steady?: boolean;
}

/** How long a server of a steady group may be silent, in milliseconds. */
export const STEADY_MS = 60_000;

type Start = (options: RedisServerOptions) => Promise<RedisServer>;

/** Builds a group of servers. All of them stop with the group, or at once if it cannot be built. */
export async function starting(build: (start: Start) => Promise<Omit<RedisGroup, 'stop'>>): Promise<RedisGroup> {
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
export async function inStep(servers: readonly RedisServer[], count: number): Promise<boolean> {
  const infos = await Promise.all(servers.map((server) => server.command('INFO replication')));
  return infos.filter((info) => info.includes('master_link_status:up')).length === count;
}

export function urlOf(kind: 'sentinel' | 'cluster', seeds: readonly RedisServer[], tls: RedisTls | undefined): string {
  const { name, password } = PLANE_USER;
  const nodes = seeds.map(({ port }) => `127.0.0.1:${port}`).join(',');
  return `${tls ? 'rediss' : 'redis'}+${kind}://${name}:${password}@${nodes}`;
}
