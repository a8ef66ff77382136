import type { RedisProbe } from '@isthmus/directory/redis';
import { type Result, reportOf } from '@isthmus/findings';
import { secureContextOptions } from '@isthmus/runtime';
import { messageOf } from '../exit.ts';
import { millis } from '../output/units.ts';

export interface RedisOptions {
  readonly redisUrl?: string;
  readonly plane: string;
  readonly redisCaCert?: string;
  readonly redisCert?: string;
  readonly redisKey?: string;
}

/** The oldest version in the plane's tests. */
const OLDEST_REDIS = 7;

/** A slower registry delays what gateways learn, but not dials. */
const SLOW_MS = 100;

const report = reportOf('redis');

export interface RedisResults {
  readonly results: readonly Result[];
  /** How far its clock is ahead of this machine's; unset if it did not answer. */
  readonly aheadMs?: number;
}

export async function checkRedis(options: RedisOptions): Promise<RedisResults> {
  if (options.redisUrl === undefined) return { results: [] };
  const files = { ca: options.redisCaCert, cert: options.redisCert, key: options.redisKey };
  try {
    const { probeRedis } = await import('@isthmus/directory/redis');
    const probe = await probeRedis({
      url: options.redisUrl,
      plane: options.plane,
      tls: () => secureContextOptions(files),
    });
    const { aheadMs } = probe;
    return { results: judgedRedis(probe, options.plane), ...(aheadMs !== undefined && { aheadMs }) };
  } catch (error) {
    const todo =
      'check that it runs, its address, user name and password, and whether it needs TLS (rediss). Gateways and hubs that run keep working without it';
    return { results: [report.fail('--redis-url', messageOf(error), todo)] };
  }
}

export function judgedRedis(probe: RedisProbe, plane: string): Result[] {
  const { server, version, role, maxmemoryPolicy, roundTripMs, refused } = probe;
  const results = [
    roundTripMs < SLOW_MS
      ? report.pass(server, `answers in ${millis(roundTripMs)}`)
      : report.warn(server, `answers in ${millis(roundTripMs)}`, 'check its load, and the network to it'),
  ];
  if (version !== '') {
    const old = Number(version.split('.')[0]) < OLDEST_REDIS;
    results.push(
      old
        ? report.warn(server, `version ${version} is not tested`, `use version ${OLDEST_REDIS} or newer`)
        : report.pass(server, `version ${version}`),
    );
  }
  if (role !== '' && role !== 'master') {
    const todo = 'use the address of the primary, or redis+sentinel:// or redis+cluster://, which find it';
    // It refuses every write, whatever the user's rights.
    return [...results, report.fail(server, `it is a ${role}, so nothing can be written to it`, todo)];
  }
  if (maxmemoryPolicy !== '' && maxmemoryPolicy !== 'noeviction') {
    const fact = `maxmemory-policy is ${maxmemoryPolicy}: when its memory is full, it deletes records of hubs and agents`;
    results.push(report.warn(server, fact, 'CONFIG SET maxmemory-policy noeviction, here and in its configuration'));
  }
  const names = [...new Set(refused.map(({ command }) => command))];
  results.push(
    names.length === 0
      ? report.pass(server, 'the user may run every command that a plane needs')
      : report.fail(server, `the user may not run ${names.join(', ')} (${refused[0]?.reason})`, rights(names, plane)),
  );
  return results;
}

/** Keys of a plane start with its name in braces. */
function rights(names: readonly string[], plane: string): string {
  return `ACL SETUSER name ~{${plane}}:* ${names.map((name) => `+${name.toLowerCase()}`).join(' ')}`;
}
