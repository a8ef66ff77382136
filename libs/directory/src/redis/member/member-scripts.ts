import { NOW } from '../script-parts.ts';

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

/** Returns the members that are present: for how many ms each has not written, and its record. KEYS: members. ARGV: ttl in ms. */
export const ROLL_CALL = `${MEMBERS}
local present = {}
for _, value in ipairs(redis.call('HVALS', members)) do
  if there(value) then
    local written, record = string.match(value, '^(%d+) (.*)$')
    present[#present + 1] = string.format('%d', now - written) .. ' ' .. record
  end
end
return present
`;
