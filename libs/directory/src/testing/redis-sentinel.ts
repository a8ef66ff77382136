import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { until } from '@isthmus/runtime/testing';
import { freePort } from './free-port.ts';
import { inStep, type RedisGroup, type RedisGroupOptions, STEADY_MS, starting, urlOf } from './redis-group.ts';
import { planeUserArgs, type RedisServer, type RedisTls, tlsArgs } from './redis-server.ts';

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
