/** The start of every script that writes to the stream of changes. Expects the variables meta, changes and kept. */
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

/** Sets `now` to Redis' clock, in milliseconds. */
const NOW = `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
`;

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
local function keep(record) redis.call('HSET', meta, 'hub:' .. hubId, record) end
`;

/**
 * Renews the hub's record and writes changes of its sessions. PEXPIRE comes first because a server that is out of memory still accepts
 * it, and then accepts all later writes of the script. The directory is small, and no dial can be routed without it.
 *
 * ARGV: acknowledged mark, mark, ttl in ms, hub record, '1' if that changed, number of sessions that the store must hold, then for each
 * session: id, version, record (empty when gone), change.
 */
const WRITE = `${PRELUDE}
local acknowledged, mark, ttl, record = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6], ARGV[7]
if charge and charge > incarnation then return 'superseded' end
local held = leading_number(redis.call('GET', hub))
if charge ~= incarnation or not held or held < acknowledged then return 'lost' end
if held >= mark then return 'late' end
if redis.call('HLEN', sessions) < tonumber(ARGV[9]) then return 'lost' end
redis.call('PEXPIRE', hub, ttl)
redis.call('SET', hub, ARGV[5] .. ' ' .. record, 'PX', ttl)
if ARGV[8] == '1' then
  keep(record)
  publish('{"kind":"hub","hub":' .. record .. '}')
end
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
const STAGE = `
redis.call('EXPIRE', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
return redis.call('EXPIRE', KEYS[1], ARGV[1])
`;

/**
 * Puts the hub in charge. Its staged sessions replace all its earlier ones.
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
keep(record)
return 'ok'
`;

/** Removes a hub with all its sessions. ARGV: change, '1' to remove it only if its record has expired. */
const REMOVE = `${PRELUDE}
if charge ~= incarnation then return 'superseded' end
if ARGV[5] == '1' and redis.call('EXISTS', hub) == 1 then return 'alive' end
redis.call('UNLINK', hub, sessions)
redis.call('HDEL', hubs, hubId)
redis.call('HDEL', meta, 'hub:' .. hubId)
publish(ARGV[4])
return 'ok'
`;

/**
 * Reads what a watcher checks.
 * KEYS: hubs, meta, quarantines. Returns: hub ids and incarnations, alternating; epoch and number of changes; the server's run and
 * role; whether there are quarantines, 1 or 0.
 */
const LOOK = `
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
local role = string.match(redis.call('INFO', 'replication'), 'role:(%w+)')
local charge, position = redis.call('HGETALL', KEYS[1]), redis.call('HMGET', KEYS[2], 'epoch', 'seq')
return {charge, position, {run, role}, redis.call('EXISTS', KEYS[3])}
`;

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

/** Returns the members that are present: for how many ms each has not written, and its record. KEYS: members. ARGV: ttl in ms. */
const ROLL_CALL = `${MEMBERS}
local present = {}
for _, value in ipairs(redis.call('HVALS', members)) do
  if there(value) then
    local written, record = string.match(value, '^(%d+) (.*)$')
    present[#present + 1] = string.format('%d', now - written) .. ' ' .. record
  end
end
return present
`;

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
const QUARANTINE = `${QUARANTINES}
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
const RESTORE = `${QUARANTINES}
for i = 3, #ARGV, 4 do
  local held = leading_number(redis.call('HGET', quarantines, ARGV[i]))
  local room = held or redis.call('HLEN', quarantines) < 3 * most
  local version = tonumber(ARGV[i + 1])
  if room and (not held or held < version) then write(ARGV[i], version, ARGV[i + 2], ARGV[i + 3]) end
end
return 'ok'
`;

export const SCRIPTS = {
  isthmusWrite: { lua: WRITE, numberOfKeys: 5 },
  isthmusStage: { lua: STAGE, numberOfKeys: 1 },
  isthmusOpen: { lua: OPEN, numberOfKeys: 6 },
  isthmusRemove: { lua: REMOVE, numberOfKeys: 5 },
  isthmusLook: { lua: LOOK, numberOfKeys: 3 },
  isthmusQuarantine: { lua: QUARANTINE, numberOfKeys: 3 },
  isthmusRestore: { lua: RESTORE, numberOfKeys: 3 },
  isthmusBeat: { lua: BEAT, numberOfKeys: 1 },
  isthmusRollCall: { lua: ROLL_CALL, numberOfKeys: 1 },
} as const;

type Write = (...keysThenArguments: (string | number)[]) => Promise<string>;
type Writes = Exclude<keyof typeof SCRIPTS, 'isthmusRollCall' | 'isthmusLook'>;

/** The scripts as commands of a client. */
export interface Scripted extends Readonly<Record<Writes, Write>> {
  isthmusRollCall(members: string, ttlMs: number): Promise<string[]>;
  isthmusLook(
    hubs: string,
    meta: string,
    quarantines: string,
  ): Promise<[charge: string[], position: (string | null)[], server: [run: string, role: string], exists: number]>;
}
