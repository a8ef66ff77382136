import { HISTORY, NOW } from '../script-parts.ts';

/**
 * The start of every quarantine script. PERSIST comes first for the same reason as PEXPIRE in WRITE of the hubs.
 * KEYS: quarantines, meta, changes. ARGV: length of the stream, maximum number of released agents, and of those of one tenant
 * in quarantine.
 */
const QUARANTINES = `
local quarantines, meta, changes = KEYS[1], KEYS[2], KEYS[3]
local kept, most = ARGV[1], tonumber(ARGV[2])
${HISTORY}
redis.call('PERSIST', quarantines)

local function write(field, version, sign, record)
  redis.call('HSET', quarantines, field, string.format('%d', version) .. sign .. record)
  publish('{"kind":"quarantine","quarantine":' .. record .. '}')
end
`;

/**
 * Records an operator's decision about an agent. Of the released agents, only the latest are remembered, up to a bound.
 * No tenant has more of them in quarantine than it leaves to others.
 * ARGV: field, sign, the Quarantine as JSON without its version and the first brace, the start of the fields of its tenant.
 */
export const QUARANTINE = `${QUARANTINES}
local field, sign, rest, tenant = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local held = redis.call('HGET', quarantines, field)
local version, before, known = string.match(held or '', '^(%d+)([+-]){"version":%d+,(.*)$')
if before == sign and known == rest then return 'same' end
${NOW}
local counts, own, oldest, oldestVersion = { ['+'] = 0, ['-'] = 0 }, 0, nil, nil
local all = redis.call('HGETALL', quarantines)
for i = 1, #all, 2 do
  local each, other = string.match(all[i + 1], '^(%d+)([+-])')
  if all[i] ~= field then
    counts[other] = counts[other] + 1
    if other == '+' and string.sub(all[i], 1, #tenant) == tenant then own = own + 1 end
    if other == '-' and (not oldest or tonumber(each) < oldestVersion) then oldest, oldestVersion = all[i], tonumber(each) end
  end
end
if sign == '+' and own >= 2 * most - counts['+'] then return 'full' end
if sign == '-' and counts['-'] >= most then redis.call('HDEL', quarantines, oldest) end
local fresh = math.max(now, (tonumber(version) or 0) + 1)
write(field, fresh, sign, '{"version":' .. string.format('%d', fresh) .. ',' .. rest)
return (before or '-') == '-' and sign == '-' and 'same' or 'ok'
`;

/** Writes again what the store lacks. ARGV, for each: field, version, sign, the Quarantine as JSON with its version first. */
export const RESTORE = `${QUARANTINES}
for i = 3, #ARGV, 4 do
  local held = leading_number(redis.call('HGET', quarantines, ARGV[i]))
  local room = held or redis.call('HLEN', quarantines) < 3 * most
  local version = tonumber(ARGV[i + 1])
  if room and (not held or held < version) then write(ARGV[i], version, ARGV[i + 2], ARGV[i + 3]) end
end
return 'ok'
`;
