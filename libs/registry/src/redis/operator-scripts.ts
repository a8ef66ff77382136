import { HISTORY, NOW } from './script-parts.ts';

/**
 * The start of every member script. It uses only Redis' clock. A member is present if it wrote within the time to live. A write in the
 * future was made before the clock was set back, and does not count.
 */
const MEMBERS = `
local members, ttl = KEYS[1], tonumber(ARGV[1])
${NOW}
local function there(value)
  local written = tonumber(string.match(value, '^%d+'))
  return written <= now and now - written < ttl
end
`;

/**
 * Writes that a member is present. The first time it also removes absent members, so that processes that keep starting and dying leave
 * no more entries than run at a time. PEXPIRE comes first for the same reason as in WRITE of the hubs.
 * KEYS: members. ARGV: ttl in ms, field, record, '1' for the first time.
 */
export const BEAT = `${MEMBERS}
redis.call('PEXPIRE', members, ttl)
if ARGV[4] == '1' then
  local all = redis.call('HGETALL', members)
  for i = 1, #all, 2 do
    if not there(all[i + 1]) then redis.call('HDEL', members, all[i]) end
  end
end
redis.call('HSET', members, ARGV[2], string.format('%d', now) .. ' ' .. ARGV[3])
redis.call('PEXPIRE', members, ttl)
return 'ok'
`;

/** Returns the records of the members that are present. KEYS: members. ARGV: ttl in ms. */
export const ROLL_CALL = `${MEMBERS}
local present = {}
for _, value in ipairs(redis.call('HVALS', members)) do
  if there(value) then present[#present + 1] = string.match(value, '^%d+ (.*)$') end
end
return present
`;

/**
 * The start of every quarantine script. PERSIST comes first for the same reason as PEXPIRE in WRITE of the hubs.
 * KEYS: quarantines, meta, changes. ARGV: length of the stream, maximum number of agents of each sign.
 */
const QUARANTINES = `
local quarantines, meta, changes = KEYS[1], KEYS[2], KEYS[3]
local kept, most = ARGV[1], tonumber(ARGV[2])
${HISTORY}
redis.call('PERSIST', quarantines)

local function say(field, version, sign, record)
  redis.call('HSET', quarantines, field, string.format('%d', version) .. sign .. record)
  publish('{"kind":"quarantine","quarantine":' .. record .. '}')
end
`;

/**
 * Records an operator's decision about an agent. Of the released agents, only the latest are remembered, up to a bound.
 * ARGV: field, sign, the Quarantine as JSON without its version and the first brace.
 */
export const QUARANTINE = `${QUARANTINES}
local field, sign, rest = ARGV[3], ARGV[4], ARGV[5]
local held = redis.call('HGET', quarantines, field)
local version, before, known = string.match(held or '', '^(%d+)([+-]){"version":%d+,(.*)$')
if before == sign and known == rest then return 'same' end
${NOW}
local counts, oldest, oldestVersion = { ['+'] = 0, ['-'] = 0 }, nil, nil
local all = redis.call('HGETALL', quarantines)
for i = 1, #all, 2 do
  local each, other = string.match(all[i + 1], '^(%d+)([+-])')
  if all[i] ~= field then
    counts[other] = counts[other] + 1
    if other == '-' and (not oldest or tonumber(each) < oldestVersion) then oldest, oldestVersion = all[i], tonumber(each) end
  end
end
if sign == '+' and counts['+'] >= most then return 'full' end
if sign == '-' and counts['-'] >= most then redis.call('HDEL', quarantines, oldest) end
local fresh = math.max(now, (tonumber(version) or 0) + 1)
say(field, fresh, sign, '{"version":' .. string.format('%d', fresh) .. ',' .. rest)
return (before or '-') == '-' and sign == '-' and 'same' or 'ok'
`;

/** Writes again what the store lacks. ARGV, for each: field, version, sign, the Quarantine as JSON with its version first. */
export const REMIND = `${QUARANTINES}
for i = 3, #ARGV, 4 do
  local held = leading_number(redis.call('HGET', quarantines, ARGV[i]))
  local room = held or redis.call('HLEN', quarantines) < 2 * most
  local version = tonumber(ARGV[i + 1])
  if room and (not held or held < version) then say(ARGV[i], version, ARGV[i + 2], ARGV[i + 3]) end
end
return 'ok'
`;
