import { randomBytes } from 'node:crypto';
import { type Client, endpointOf, isRefusal, RedisConnection, whyNoWrites } from './connection.ts';
import { planeKeys, type RedisRegistryOptions } from './options.ts';

/** How well a Redis suits a plane that uses it or would use it. */
export interface RedisProbe {
  /** `host:port`, as the URL names it. */
  readonly server: string;
  /** Empty if this user may not ask for it. */
  readonly version: string;
  /** `master` accepts writes. Empty if this user may not ask for it. */
  readonly role: string;
  /** What it does when its memory is full: `noeviction` keeps the plane's keys. Empty if this user may not ask for it. */
  readonly maxmemoryPolicy: string;
  /** How long one command took, in milliseconds. */
  readonly roundTripMs: number;
  /**
   * How far its clock is ahead of this machine's, in milliseconds, within half of the round trip. Unset if this user may not ask for
   * it.
   */
  readonly aheadMs?: number;
  /** Commands that a plane needs and this user may not run, with the server's reason. */
  readonly refused: readonly { readonly command: string; readonly reason: string }[];
  /** Set if it takes writes of nobody now: why, and its answer. */
  readonly noWrites?: { readonly why: string; readonly reason: string };
}

/** Tries commands on its own key with the plane's prefix, which expires by itself. KEYS: scratch, and one to rename it to. */
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
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'no such key', 1, true) then
    refused[#refused + 1] = command[1]
    refused[#refused + 1] = answer.err
  end
end
return refused
`;

/**
 * Checks whether a Redis can serve a plane. Writes to none of the plane's own keys.
 * @throws RegistryUnavailable if it cannot be reached or rejects the login; RangeError for a malformed URL or plane name.
 */
export async function probeRedis(options: RedisRegistryOptions): Promise<RedisProbe> {
  const endpoint = endpointOf(options);
  const connection = new RedisConnection(endpoint);
  const scratch = planeKeys(options.plane).hub(`check-${randomBytes(8).toString('hex')}`);
  try {
    return await connection.run((client) => probed(client, endpoint.name, scratch));
  } finally {
    connection.close();
  }
}

async function probed(client: Client, server: string, scratch: string): Promise<RedisProbe> {
  const refused: { readonly command: string; readonly reason: string }[] = [];
  let noWrites: RedisProbe['noWrites'];
  const refuse = (command: string, reason: string) => {
    const why = whyNoWrites(reason);
    if (why === undefined) refused.push({ command, reason });
    else noWrites ??= { why, reason };
  };
  /** Returns the answer, or undefined if the server refused the command. */
  const attempt = async <T>(command: string, run: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await run();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      refuse(command, error.message);
      return undefined;
    }
  };
  const asked = performance.now();
  await attempt('PING', () => client.ping());
  const roundTripMs = performance.now() - asked;
  const before = Date.now();
  const time = (await attempt('TIME', () => client.time())) as readonly [unknown, unknown] | undefined;
  const aheadMs = time && Number(time[0]) * 1000 + Number(time[1]) / 1000 - (before + Date.now()) / 2;
  const info = (await attempt('INFO', () => client.info())) ?? '';
  const pairs = await attempt('EVAL', () => client.eval(TRY, 2, scratch, `${scratch}:2`));
  const flat = Array.isArray(pairs) ? pairs.map(String) : [];
  for (let i = 0; i < flat.length; i += 2) refuse(flat[i] ?? '', flat[i + 1] ?? '');
  await attempt('EVALSHA', () => client.evalsha(NO_SCRIPT, 1, scratch).catch(unlessUnknown));
  await attempt('MGET', () => client.mget([scratch]));
  await attempt('HSCAN', () => client.hscan(scratch, '0'));
  await attempt('XREAD', () => client.xread('COUNT', 1, 'STREAMS', scratch, '$'));
  return {
    ...{ server, roundTripMs, refused },
    ...(noWrites && { noWrites }),
    ...(aheadMs !== undefined && { aheadMs }),
    version: /redis_version:(\S+)/.exec(info)?.[1] ?? '',
    role: /role:(\w+)/.exec(info)?.[1] ?? '',
    maxmemoryPolicy: /maxmemory_policy:(\S+)/.exec(info)?.[1] ?? '',
  };
}

/** The hash of no script. A user who may call scripts gets NOSCRIPT. */
const NO_SCRIPT = '0'.repeat(40);

function unlessUnknown(error: Error): void {
  if (!error.message.startsWith('NOSCRIPT')) throw error;
}
