import { HISTORY } from '../script-parts.ts';

/**
 * The writes of hubs, as scripts. Each checks and writes in one step, so that a late command cannot undo anything: neither one of a
 * dead hub, nor one that timed out and arrives after its retry.
 *
 * KEYS of each: hub, sessions, hubs, meta, changes. ARGV of each: hub id, incarnation, length of the stream.
 *
 * Each write of a hub carries a mark one higher than the last. If the store holds a lower mark than it has acknowledged, or fewer
 * sessions, it lost writes: an older dump was restored, a replica without them took over, or it evicted a key. If it holds the write's
 * own mark or a higher one, the write is late.
 */
const PRELUDE = `
local hub, sessions, hubs, meta, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local hubId, incarnation, kept = ARGV[1], tonumber(ARGV[2]), ARGV[3]
${HISTORY}
local charge = tonumber(redis.call('HGET', hubs, hubId) or '')
`;

/**
 * Renews the hub's record and writes changes of its sessions. PEXPIRE comes first because a server that is out of memory still accepts
 * it, and then accepts all later writes of the script. The directory is small, and no dial can be routed without it.
 *
 * ARGV: acknowledged mark, mark, ttl in ms, hub record, '1' if that changed, number of sessions that the store must hold, then for each
 * session: id, version, record (empty when gone), change.
 */
export const WRITE = `${PRELUDE}
local acknowledged, mark, ttl, record = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
if charge and charge > incarnation then return 'superseded' end
local held = leading_number(redis.call('GET', hub))
if charge ~= incarnation or not held or held < acknowledged then return 'lost' end
if held >= mark then return 'late' end
if redis.call('HLEN', sessions) < tonumber(ARGV[9]) then return 'lost' end
redis.call('PEXPIRE', hub, ttl)
redis.call('SET', hub, ARGV[5] .. ' ' .. record, 'PX', ttl)
if ARGV[8] == '1' then publish('{"kind":"hub","hub":' .. record .. '}') end
for i = 10, #ARGV, 4 do
  local id, version, session, change = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3]
  local current = leading_number(redis.call('HGET', sessions, id))
  if session == '' then
    if current and current <= version then
      redis.call('HDEL', sessions, id)
      publish(change)
    end
  elseif not current or current < version then
    redis.call('HSET', sessions, id, ARGV[i + 1] .. ' ' .. session)
    publish(change)
  end
end
return 'ok'
`;

/**
 * Stages the sessions of a hub that writes all of them. EXPIRE comes first for the same reason as PEXPIRE in WRITE.
 * KEYS: staged. ARGV: time to live in s, then for each session: id, version and record.
 */
export const STAGE = `
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('EXPIRE', KEYS[1], ARGV[1])
`;

/**
 * Puts the hub in charge. Its staged sessions replace all its earlier ones.
 * KEYS: staged. ARGV: mark, ttl in ms, hub record, number of staged sessions.
 */
export const OPEN = `${PRELUDE}
local staged, mark, ttl, record = KEYS[6], tonumber(ARGV[4]), ARGV[5], ARGV[6]
if charge and charge > incarnation then return 'superseded' end
local held = leading_number(redis.call('GET', hub))
if charge == incarnation and held and held >= mark then return 'late' end
if redis.call('HLEN', staged) ~= tonumber(ARGV[7]) then return 'lost' end
redis.call('UNLINK', sessions)
if redis.call('EXISTS', staged) == 1 then
  redis.call('RENAME', staged, sessions)
  redis.call('PERSIST', sessions)
end
redis.call('SET', hub, ARGV[4] .. ' ' .. record, 'PX', ttl)
redis.call('HSET', hubs, hubId, ARGV[2])
publish('{"kind":"opened","hub":' .. record .. '}')
return 'ok'
`;

/** Removes a hub with all its sessions. ARGV: change, '1' to remove it only if its record has expired. */
export const REMOVE = `${PRELUDE}
if charge ~= incarnation then return 'superseded' end
if ARGV[5] == '1' and redis.call('EXISTS', hub) == 1 then return 'alive' end
redis.call('UNLINK', hub, sessions)
redis.call('HDEL', hubs, hubId)
publish(ARGV[4])
return 'ok'
`;

/**
 * Reads what a watcher checks.
 * KEYS: hubs, meta, quarantines. Returns: hub ids and incarnations, alternating; epoch and number of changes; the server's run and
 * role; whether there are quarantines, 1 or 0.
 */
export const LOOK = `
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local role = string.match(redis.call('INFO', 'replication'), 'role:(%w+)')
local charge, position = redis.call('HGETALL', KEYS[1]), redis.call('HMGET', KEYS[2], 'epoch', 'seq')
return {charge, position, {run, role}, redis.call('EXISTS', KEYS[3])}
`;
