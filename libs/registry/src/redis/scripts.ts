/** What writes to the stream of changes begin with. Takes for granted: meta, changes, kept. */
const HISTORY = `
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

/** Milliseconds of Redis' clock. */
const NOW = `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
`;

/**
 * The writes of hubs, as scripts: each checks and acts in one step, so that a late command of a dead hub, or one that was given up
 * and arrives after its repetition, cannot undo anything.
 *
 * KEYS of each: hub, sessions, hubs, meta, changes. ARGV of each: hub id, incarnation, length of the stream.
 *
 * Every write of a hub carries a mark one higher than the last. A store that holds a lower mark than one it acknowledged
 * has forgotten writes (an older dump was restored, a replica without them took over); a higher one than the write's own
 * means that the write is late.
 */
const PRELUDE = `
local hub, sessions, hubs, meta, changes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local hubId, incarnation, kept = ARGV[1], tonumber(ARGV[2]), ARGV[3]
${HISTORY}
local charge = tonumber(redis.call('HGET', hubs, hubId) or '')
`;

/**
 * Renews the hub's record and writes changes of its sessions. PEXPIRE comes first because a server that is out of memory takes
 * it, and whatever a script writes after its first write: a directory is small, and without it no dial finds its way.
 *
 * ARGV: acknowledged mark, mark, ttl in ms, hub record, '1' if that changed, then for each session: id, version, record
 * (empty when gone), change.
 */
const WRITE = `${PRELUDE}
local acknowledged, mark, ttl, record = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
if charge and charge > incarnation then return 'superseded' end
local held = leading_number(redis.call('GET', hub))
if charge ~= incarnation or not held or held < acknowledged then return 'lost' end
if held >= mark then return 'late' end
redis.call('PEXPIRE', hub, ttl)
redis.call('SET', hub, ARGV[5] .. ' ' .. record, 'PX', ttl)
if ARGV[8] == '1' then publish('{"kind":"hub","hub":' .. record .. '}') end
for i = 9, #ARGV, 4 do
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
 * Stages sessions of a hub that writes all of them. EXPIRE comes first for the same reason as in WRITE.
 * KEYS: staged. ARGV: time to live in s, then for each session: id, version and record.
 */
const STAGE = `
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('EXPIRE', KEYS[1], ARGV[1])
`;

/**
 * Puts the hub in charge with the sessions that were staged, in place of all it had.
 * KEYS: staged. ARGV: mark, ttl in ms, hub record, number of staged sessions.
 */
const OPEN = `${PRELUDE}
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

/** Takes a hub out with all its sessions. ARGV: change, '1' if only when its record has expired. */
const REMOVE = `${PRELUDE}
if charge ~= incarnation then return 'superseded' end
if ARGV[5] == '1' and redis.call('EXISTS', hub) == 1 then return 'alive' end
redis.call('UNLINK', hub, sessions)
redis.call('HDEL', hubs, hubId)
publish(ARGV[4])
return 'ok'
`;

/**
 * Reads what a watcher looks after. KEYS: hubs, meta.
 * Gives: hub ids and incarnations by turns; epoch and count of changes; the server's run and role.
 */
const LOOK = `
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local role = string.match(redis.call('INFO', 'replication'), 'role:(%w+)')
return {redis.call('HGETALL', KEYS[1]), redis.call('HMGET', KEYS[2], 'epoch', 'seq'), {run, role}}
`;

/**
 * What the scripts of members begin with. They go by Redis' clock alone: a member is there while it wrote within the time to
 * live, and one that wrote in the future did so before that clock was set back.
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
 * Says that a member is there. The first time it also drops those that are not, so that processes which start and die over and
 * over leave no more behind than live at a time. PEXPIRE comes first for the same reason as in WRITE.
 * KEYS: members. ARGV: ttl in ms, field, record, '1' for the first time.
 */
const BEAT = `${MEMBERS}
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

/** Gives the records of the members that are there. KEYS: members. ARGV: ttl in ms. */
const ROLL_CALL = `${MEMBERS}
local present = {}
for _, value in ipairs(redis.call('HVALS', members)) do
  if there(value) then present[#present + 1] = string.match(value, '^%d+ (.*)$') end
end
return present
`;

/** KEYS: quarantines, meta, changes. ARGV: length of the stream, most agents of each sign. PERSIST comes first as PEXPIRE does in WRITE. */
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
 * What an operator says of an agent. Agents that were let out are remembered up to a bound, the latest of them.
 * ARGV: field, sign, the Quarantine as JSON without its version and the first brace.
 */
const QUARANTINE = `${QUARANTINES}
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

/** Writes again what the store lacks. ARGV: for each: field, version, sign, the Quarantine as JSON, its version first. */
const REMIND = `${QUARANTINES}
for i = 3, #ARGV, 4 do
  local held = leading_number(redis.call('HGET', quarantines, ARGV[i]))
  local room = held or redis.call('HLEN', quarantines) < 2 * most
  local version = tonumber(ARGV[i + 1])
  if room and (not held or held < version) then say(ARGV[i], version, ARGV[i + 2], ARGV[i + 3]) end
end
return 'ok'
`;

export const SCRIPTS = {
  isthmusWrite: { lua: WRITE, numberOfKeys: 5 },
  isthmusStage: { lua: STAGE, numberOfKeys: 1 },
  isthmusOpen: { lua: OPEN, numberOfKeys: 6 },
  isthmusRemove: { lua: REMOVE, numberOfKeys: 5 },
  isthmusLook: { lua: LOOK, numberOfKeys: 2 },
  isthmusQuarantine: { lua: QUARANTINE, numberOfKeys: 3 },
  isthmusRemind: { lua: REMIND, numberOfKeys: 3 },
  isthmusBeat: { lua: BEAT, numberOfKeys: 1 },
  isthmusRollCall: { lua: ROLL_CALL, numberOfKeys: 1 },
} as const;

type Write = (...keysThenArguments: (string | number)[]) => Promise<string>;

/** The scripts as commands of a client. */
export interface Scripted {
  readonly isthmusWrite: Write;
  readonly isthmusStage: Write;
  readonly isthmusOpen: Write;
  readonly isthmusRemove: Write;
  readonly isthmusQuarantine: Write;
  readonly isthmusRemind: Write;
  readonly isthmusBeat: Write;
  isthmusRollCall(members: string, ttlMs: number): Promise<string[]>;
  isthmusLook(
    hubs: string,
    meta: string,
  ): Promise<[charge: string[], position: (string | null)[], server: [run: string, role: string]]>;
}
