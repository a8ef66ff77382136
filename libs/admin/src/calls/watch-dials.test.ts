import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { until } from '@isthmus/runtime/testing';
import { DialError, type DialRequest, dialLog, type PlaneEvents, planeEvents, type Role } from '@isthmus/tunnel';
import { asking, aTunnel } from '../testing/backend.ts';
import { Recent } from './recent.ts';

const { DIAL_STATE_RUNNING, DIAL_STATE_ESTABLISHED, DIAL_STATE_FAILED } = adminApi.DialState;

function dial(id: string, given: Partial<DialRequest> = {}): DialRequest {
  const signal = new AbortController().signal;
  return { id, tenant: 'default', destination: { host: 'Db.local', port: 5432 }, deadline: 0, signal, ...given };
}

/** Emits a dial that starts and ends at once. */
function dialled(events: PlaneEvents, request: DialRequest, ms = 5, failed = false, role: Role = 'gateway'): void {
  events.emit('dial:start', role, request);
  const error = failed ? new DialError('connection_refused', 'refused') : undefined;
  events.emit('dial:end', role, request, { ms, ...(error && { error, failure: 'error' }) });
}

async function watched(t: TestContext) {
  const events = planeEvents();
  const recent = new Recent(events);
  const client = await asking({ recent });
  t.after(() => client[Symbol.asyncDispose]());
  const ids = async (request: adminApi.DeepPartial<adminApi.WatchDialsRequest>) => {
    const seen: string[] = [];
    for await (const { dial } of client.admin.watchDials({ ...request, recentOnly: true }))
      seen.push(dial?.dialId ?? '');
    return seen;
  };
  return { events, recent, admin: client.admin, ids };
}

test('recent dials are filtered by the request', async (t) => {
  const { events, ids } = await watched(t);
  dialled(events, dial('quick'));
  dialled(events, dial('slow'), 300);
  dialled(events, dial('failed'), 5, true);
  dialled(events, dial('acme', { tenant: 'acme' }));
  dialled(events, dial('six', { destination: { host: 'fd00::1', port: 443 } }));
  dialled(events, dial('hub'), 5, false, 'hub');
  const all = ['quick', 'slow', 'failed', 'acme', 'six', 'hub'];
  assert.deepEqual(await ids({}), all);
  assert.deepEqual(await ids({ recent: 2 }), ['six', 'hub']);
  assert.deepEqual(await ids({ recent: 0 }), []);
  assert.deepEqual(await ids({ tenant: 'acme' }), ['acme']);
  assert.deepEqual(await ids({ onlyFailed: true }), ['failed']);
  assert.deepEqual(await ids({ slowerThanMs: 300 }), ['slow']);
  assert.deepEqual(await ids({ role: adminApi.Role.ROLE_HUB }), ['hub']);
  assert.deepEqual(await ids({ destination: '[fd00::1]:443' }), ['six']);
  for (const name of ['fd00::1', '[fd00::1]']) assert.deepEqual(await ids({ destination: name }), ['six']);
  assert.deepEqual(await ids({ destination: 'db.local', recent: 1 }), ['hub']);
  assert.deepEqual(await ids({ destination: 'db.local:1' }), []);
  await assert.rejects(ids({ slowerThanMs: -1 }), /INVALID_ARGUMENT: slower_than_ms is -1: want 0 or more/);
});

test('a dial is reported once more when its first byte has passed, if the request asks for it', async (t) => {
  const { events, recent, admin } = await watched(t);
  const request = dial('d');
  const follow = (firstBytes: boolean) => {
    const told: string[] = [];
    const answers = admin.watchDials({ recent: 0, firstBytes, phases: true });
    const done = (async () => {
      for await (const { dial: record } of answers) {
        told.push(`${record?.dialId} ${record?.firstByteMs ?? '-'} ${record?.phases.at(-1)?.name ?? ''}`);
        if (record?.dialId === 'e') return;
      }
    })();
    return { told, done };
  };
  const [all, some] = [follow(true), follow(false)];
  await until(() => recent.watchers === 2, { what: 'two watchers' });
  dialled(events, request);
  await until(() => all.told.length === 2, { what: 'its end' });
  events.emit('tunnel:first-byte', aTunnel({ dial: request }), 7);
  events.emit('dial:start', 'gateway', dial('e'));
  await Promise.all([all.done, some.done]);
  assert.deepEqual(all.told, ['d - ', 'd - gateway', 'd 7 first_byte', 'e - ']);
  assert.deepEqual(some.told, ['d - ', 'd - gateway', 'e - ']);
});

test('a dial is reported with its log, its timing, its trace and its failure', async (t) => {
  const { events, admin } = await watched(t);
  const error = new DialError('connection_terminated', 'hub lost', { retryable: true });
  const log = { ...dialLog(), parkedMs: 12 };
  const traceparent = `00-${'ab'.repeat(16)}-${'cd'.repeat(8)}-01`;
  const request = dial('d', { log, traceparent, caller: { via: 'grpc', identity: 'uds' } });
  events.emit('dial:start', 'gateway', request);
  const where = { sessionId: 's', agentId: 'a', hubId: 'h' };
  const [start, since] = [performance.now() - 80, Date.now()];
  // So long that its attempts are after its start, however busy the machine is.
  const ms = 60_000;
  log.attempts.push({ ...where, kind: 'first', start, ms: 30, outcome: 'failed', error });
  log.attempts.push({ ...where, kind: 'retry', start: start + 30, ms: 50, outcome: 'established' });
  events.emit('dial:end', 'gateway', request, { ...where, ms, timing: { dnsMs: 1, connectMs: 2, hubMs: 4 } });
  const records: adminApi.DialRecord[] = [];
  for await (const { dial: record, recent } of admin.watchDials({ recentOnly: true })) {
    assert.ok(record && recent);
    records.push(record);
  }
  const [record] = records as [adminApi.DialRecord];
  assert.equal(record.state, DIAL_STATE_ESTABLISHED);
  assert.deepEqual([record.caller, record.via, record.destination], ['uds', 'grpc', 'Db.local:5432']);
  assert.deepEqual([record.agentId, record.sessionId, record.hubId, record.ms], ['a', 's', 'h', ms]);
  assert.deepEqual([record.traceId, record.parkedMs], ['ab'.repeat(16), 12]);
  assert.deepEqual(record.timing, { dnsMs: 1, connectMs: 2, hubMs: 4, agentMs: undefined });
  const endedMs = record.startedMs + ms;
  // Two clocks are compared, and one of them may be set meanwhile.
  assert.ok(since - 500 < endedMs && endedMs < Date.now() + 500, `${record.startedMs}`);
  const [first, second] = record.attempts as [adminApi.DialAttempt, adminApi.DialAttempt];
  assert.deepEqual(first.error, { code: 'connection_terminated', text: 'hub lost', reason: '', retryable: true });
  assert.deepEqual([first.ms, second.ms, second.error], [30, 50, undefined]);
  assert.ok(Math.abs(second.startMs - first.startMs - 30) < 0.01);
});

test("the gateway's log is not shown for the hub's dial, which knows the session", async (t) => {
  const { events, admin } = await watched(t);
  const log = dialLog();
  const where = { sessionId: 's', agentId: 'a', hubId: 'h' };
  log.attempts.push({ ...where, kind: 'first', start: performance.now(), ms: 5, outcome: 'failed' });
  dialled(events, dial('d', { log, session: 's' }), 5, true, 'hub');
  dialled(events, dial('d', { log }), 5, true);
  const told: unknown[] = [];
  for await (const { dial: record } of admin.watchDials({ recentOnly: true })) {
    told.push([record?.attempts.length, record?.sessionId, record?.agentId]);
  }
  assert.deepEqual(told, [
    [0, 's', ''],
    [1, 's', 'a'],
  ]);
});

test('failed and slow dials are kept longer than normal ones', async (t) => {
  const { events, ids } = await watched(t);
  dialled(events, dial('failed'), 5, true);
  for (let index = 0; index < 1500; index++) dialled(events, dial('quick'));
  dialled(events, dial('slow'), 1000);
  for (let index = 0; index < 999; index++) dialled(events, dial('quick'));
  const kept = await ids({});
  assert.equal(kept.length, 1001);
  assert.deepEqual([kept[0], kept[1]], ['failed', 'slow']);
  assert.deepEqual(await ids({ onlyFailed: true }), ['failed']);
});

test("a tenant's failed dials take no place of another's", async (t) => {
  const { events, ids } = await watched(t);
  dialled(events, dial('one', { tenant: 'acme' }), 5, true);
  for (let index = 0; index < 1500; index++) dialled(events, dial('many'), 5, true);
  assert.deepEqual(await ids({ tenant: 'acme' }), ['one']);
});

test('a watcher sees dials start and end live, after the recent ones', { timeout: 60_000 }, async (t) => {
  const { events, recent, admin } = await watched(t);
  dialled(events, dial('before'));
  const stop = new AbortController();
  const seen: [string | undefined, number | undefined, boolean][] = [];
  const watching = async () => {
    for await (const { dial: record, recent, lost } of admin.watchDials({}, { signal: stop.signal })) {
      assert.equal(lost, 0);
      seen.push([record?.dialId, record?.state, recent]);
      if (seen.length === 1) dialled(events, dial('during'), 5, true);
      if (seen.length === 3) stop.abort();
    }
  };
  await assert.rejects(watching(), { name: 'AbortError' });
  assert.deepEqual(seen, [
    ['before', DIAL_STATE_ESTABLISHED, true],
    ['during', DIAL_STATE_RUNNING, false],
    ['during', DIAL_STATE_FAILED, false],
  ]);
  while (recent.watchers > 0) await new Promise((resolve) => setImmediate(resolve));
});

test('dials that a slow client misses are counted', { timeout: 60_000 }, async (t) => {
  const { events, recent, admin } = await watched(t);
  dialled(events, dial('first'));
  const stop = new AbortController();
  let told = 0;
  let missed = 0;
  const watching = async () => {
    for await (const { dial: record, recent, lost } of admin.watchDials({}, { signal: stop.signal })) {
      missed += lost;
      // Each dial is two events, and the client can receive none before all are emitted.
      if (recent) for (let index = 0; index < 2500; index++) dialled(events, dial(`d${index}`));
      else if (record) told++;
      if (told + missed === 5000) stop.abort();
    }
  };
  await assert.rejects(watching(), { name: 'AbortError' });
  assert.deepEqual([told, missed], [1000, 4000]);
  assert.equal(recent.pending('gateway'), 0);
});

test('the number of watchers of a program is bounded', async (t) => {
  const { recent, admin } = await watched(t);
  const ends = Array.from({ length: 32 }, () => recent.watch(() => {}));
  const next = admin.watchDials({})[Symbol.asyncIterator]().next();
  await assert.rejects(next, /RESOURCE_EXHAUSTED: too many clients watch this program's dials: 32 may/);
  for (const end of ends) end?.();
  assert.equal(recent.watchers, 0);
});

test('operators of one tenant leave watchers to others', async (t) => {
  const { recent } = await watched(t);
  const most = (tenant?: string) => {
    let count = 0;
    while (recent.watch(() => {}, tenant)) count++;
    return count;
  };
  assert.deepEqual([most('a'), most('b'), most('c'), most('d'), most('e'), most('f'), most()], [16, 8, 4, 2, 1, 0, 1]);
});
