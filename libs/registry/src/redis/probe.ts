import { randomBytes } from 'node:crypto';
import { type Client, endpointOf, isRefusal, RedisConnection } from './connection.ts';
import { planeKeys } from './keys.ts';
import { REDIS_TIMINGS, type RedisRegistryOptions } from './options.ts';

/** What a Redis is like for a plane that would use it, or does. */
export interface RedisProbe {
  /** `host:port`, as the URL names it. */
  readonly server: string;
  /** Empty where this user may not ask. */
  readonly version: string;
  /** `master` can be written to; empty where this user may not ask. */
  readonly role: string;
  /** How long one command took, in milliseconds. */
  readonly roundTripMs: number;
  /**
   * How far its clock is ahead of this machine's, in milliseconds, give or take half of the round trip; unset where this user may
   * not ask.
   */
  readonly aheadMs?: number;
  /** Commands that a plane needs and this user was refused, with the server's word for it. */
  readonly refused: readonly { readonly command: string; readonly reason: string }[];
}

/** On a key of its own, with the plane's prefix, that expires by itself. KEYS: scratch, and one to rename it to. */
const TRY = `
local key, other = KEYS[1], KEYS[2]
local commands = {
  {'SET', key, '1', 'PX', 10000}, {'GET', key}, {'PEXPIRE', key, 10000}, {'EXISTS', key}, {'PERSIST', key}, {'EXPIRE', key, 10},
  {'RENAME', key, other}, {'UNLINK', other},
  {'HSET', key, 'f', '1'}, {'EXPIRE', key, 10}, {'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HGETALL', key}, {'HVALS', key}, {'HLEN', key},
  {'HINCRBY', key, 'f', 1}, {'HDEL', key, 'f'}, {'UNLINK', key},
  {'XADD', key, 'MAXLEN', '~', '1', '*', 'f', '1'}, {'EXPIRE', key, 10}, {'UNLINK', key},
  {'TIME'}, {'INFO', 'server'},
}
local refused = {}
for _, command in ipairs(commands) do
  local answer = redis.pcall(unpack(command))
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = command[1]
    refused[#refused + 1] = answer.err
  end
end
return refused
`;

/**
 * Asks a Redis whether a plane can live in it. Writes nothing of the plane's own.
 * @throws RegistryUnavailable when it cannot be reached, or lets nobody in; RangeError for a URL that is none.
 */
export async function probeRedis(options: RedisRegistryOptions): Promise<RedisProbe> {
  const timings = { ...REDIS_TIMINGS, ...options.timings };
  const endpoint = endpointOf(options, timings);
  const connection = new RedisConnection(endpoint, timings);
  const scratch = planeKeys(options.plane).hub(`check-${randomBytes(8).toString('hex')}`);
  try {
    return await connection.run((client) => probed(client, endpoint.name, scratch));
  } finally {
    connection.close();
  }
}

async function probed(client: Client, server: string, scratch: string): Promise<RedisProbe> {
  const trial = new Trial();
  const asked = performance.now();
  await trial.attempt('PING', () => client.ping());
  const roundTripMs = performance.now() - asked;
  const before = Date.now();
  const time = (await trial.attempt('TIME', () => client.time())) as readonly [unknown, unknown] | undefined;
  const aheadMs = time && Number(time[0]) * 1000 + Number(time[1]) / 1000 - (before + Date.now()) / 2;
  const info = (await trial.attempt('INFO', () => client.info())) ?? '';
  await tryAll(trial, client, scratch);
  return {
    ...{ server, roundTripMs, refused: trial.refused, ...(aheadMs !== undefined && { aheadMs }) },
    version: /redis_version:(\S+)/.exec(info)?.[1] ?? '',
    role: /role:(\w+)/.exec(info)?.[1] ?? '',
  };
}

/** Commands that are tried, one by one. */
class Trial {
  readonly refused: { readonly command: string; readonly reason: string }[] = [];

  /** @returns its answer, or undefined when the server refused it */
  async attempt<T>(command: string, run: () => Promise<T>): Promise<T | undefined> {
    try {
      return await run();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      this.refused.push({ command, reason: error.message });
      return undefined;
    }
  }
}

async function tryAll(trial: Trial, client: Client, scratch: string): Promise<void> {
  const pairs = await trial.attempt('EVAL', () => client.eval(TRY, 2, scratch, `${scratch}:2`));
  const flat = Array.isArray(pairs) ? pairs.map(String) : [];
  for (let i = 0; i < flat.length; i += 2) trial.refused.push({ command: flat[i] ?? '', reason: flat[i + 1] ?? '' });
  await trial.attempt('EVALSHA', () => client.evalsha(NO_SCRIPT, 1, scratch).catch(unlessUnknown));
  await trial.attempt('MGET', () => client.mget([scratch]));
  await trial.attempt('HSCAN', () => client.hscan(scratch, '0'));
  await trial.attempt('XREAD', () => client.xread('COUNT', 1, 'STREAMS', scratch, '$'));
}

/** Of no script: who may call scripts is told that there is none. */
const NO_SCRIPT = '0'.repeat(40);

function unlessUnknown(error: Error): void {
  if (!error.message.startsWith('NOSCRIPT')) throw error;
}
