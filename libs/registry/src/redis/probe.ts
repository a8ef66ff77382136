import { randomBytes } from 'node:crypto';
import { type Client, endpointOf, RedisConnection } from './connection.ts';
import { planeKeys } from './keys.ts';
import { REDIS_TIMINGS, type RedisRegistryOptions } from './options.ts';

/** What a Redis is like for a plane that would use it, or does. */
export interface RedisProbe {
  /** `host:port`, as the URL names it. */
  readonly server: string;
  readonly version: string;
  /** `master` can be written to. */
  readonly role: string;
  /** How long one command took, in milliseconds. */
  readonly roundTripMs: number;
  /** How far its clock is ahead of this machine's, in milliseconds, give or take half of the round trip. */
  readonly aheadMs: number;
  /** Commands that a plane needs and this user was refused, with the server's word for it. */
  readonly refused: readonly { readonly command: string; readonly reason: string }[];
}

/** On a key of its own, with the plane's prefix, that expires by itself. KEYS: scratch, and one to rename it to. */
const TRY = `
local key, other = KEYS[1], KEYS[2]
local commands = {
  {'SET', key, '1', 'PX', 10000}, {'GET', key}, {'PEXPIRE', key, 10000}, {'EXISTS', key}, {'PERSIST', key}, {'EXPIRE', key, 10},
  {'RENAME', key, other}, {'UNLINK', other},
  {'HSET', key, 'f', '1'}, {'EXPIRE', key, 10}, {'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HGETALL', key}, {'HLEN', key},
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
    return await connection.run(async (client) => {
      const asked = performance.now();
      await client.ping();
      const roundTripMs = performance.now() - asked;
      const before = Date.now();
      const [seconds, micros] = (await client.time()) as unknown as [string | number, string | number];
      const aheadMs = Number(seconds) * 1000 + Number(micros) / 1000 - (before + Date.now()) / 2;
      const info = await client.info();
      return {
        server: endpoint.name,
        version: /redis_version:(\S+)/.exec(info)?.[1] ?? '',
        role: /role:(\w+)/.exec(info)?.[1] ?? '',
        roundTripMs,
        aheadMs,
        refused: await refusedTo(client, scratch),
      };
    });
  } finally {
    connection.close();
  }
}

async function refusedTo(client: Client, scratch: string): Promise<RedisProbe['refused']> {
  const refused: { command: string; reason: string }[] = [];
  const attempt = async (command: string, run: () => Promise<unknown>) => {
    try {
      return await run();
    } catch (error) {
      refused.push({ command, reason: (error as Error).message });
      return undefined;
    }
  };
  const pairs = await attempt('EVAL', () => client.eval(TRY, 2, scratch, `${scratch}:2`));
  const flat = Array.isArray(pairs) ? pairs.map(String) : [];
  for (let i = 0; i < flat.length; i += 2) refused.push({ command: flat[i] ?? '', reason: flat[i + 1] ?? '' });
  await attempt('MGET', () => client.mget([scratch]));
  await attempt('HSCAN', () => client.hscan(scratch, '0'));
  await attempt('XREAD', () => client.xread('COUNT', 1, 'STREAMS', scratch, '$'));
  return refused;
}
