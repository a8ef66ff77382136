/** The start of every script that writes to the stream of changes. Expects the variables meta, changes and kept. */
export const HISTORY = `
local function epoch()
  local known = redis.call('HGET', meta, 'epoch')
  if known then return known end
  local time = redis.call('TIME')
  local fresh = time[1] .. string.format('%06d', tonumber(time[2]))
  redis.call('UNLINK', changes)
  redis.call('HSET', meta, 'epoch', fresh, 'seq', 0)
  return fresh
end

local function publish(change)
  local id = epoch() .. '-' .. redis.call('HINCRBY', meta, 'seq', 1)
  redis.call('XADD', changes, 'MAXLEN', '~', kept, id, 'change', change)
end

local function leading_number(value)
  return value and tonumber(string.match(value, '^%d+'))
end
`;

/** Sets `now` to Redis' clock, in milliseconds. */
export const NOW = `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
`;
