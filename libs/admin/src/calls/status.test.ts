import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adminApi } from '@isthmus/proto/admin';
import { type AdmissionState, VERSION } from '@isthmus/service';
import { DialError, type DialRequest, planeEvents } from '@isthmus/tunnel';
import { asking } from '../testing/backend.ts';
import { Recent } from './recent.ts';

const { ROLE_GATEWAY, ROLE_HUB } = adminApi.Role;

function dial(id: string): DialRequest {
  const signal = new AbortController().signal;
  return { id, tenant: 'default', destination: { host: 'x', port: 1 }, deadline: 0, signal };
}

test('a status describes the process and says why it is not ready', async () => {
  const checks = [
    { name: 'registry', ok: false, detail: 'no answer for 5 s' },
    { name: 'hubs', ok: true, detail: '' },
  ];
  await using client = await asking({ checks: () => checks, sessionCount: () => 7 });
  const [since, uptime] = [Date.now(), performance.now()];
  const status = await client.admin.getStatus({});
  assert.deepEqual([status.program, status.memberId, status.hubId, status.agentId], ['proxy-server', 'm1', 'm1', '']);
  assert.deepEqual([status.roles, status.zone, status.plane], [[ROLE_GATEWAY, ROLE_HUB], 'a', 'isthmus']);
  assert.deepEqual([status.ready, status.checks, status.sessions], [false, checks, 7]);
  assert.equal(status.version, VERSION);
  assert.match(status.runtime, /^(node|deno) \d+\.\d+\.\d+/);
  const age = status.nowMs - status.startedMs;
  // Two clocks are compared, and one of them may be set meanwhile.
  assert.ok(uptime - 500 < age && age < performance.now() + 500, `${age} ms old`);
  assert.ok(since <= status.nowMs && status.nowMs <= Date.now());
});

test('a status says whether the process takes new work', async () => {
  const { ADMISSION_OPEN, ADMISSION_LEAVING, ADMISSION_DRAINING } = adminApi.Admission;
  let now: AdmissionState = 'open';
  await using client = await asking({ admission: () => now });
  const seen = async (state: AdmissionState) => {
    now = state;
    return (await client.admin.getStatus({})).admission;
  };
  assert.deepEqual(
    [await seen('open'), await seen('leaving'), await seen('draining')],
    [ADMISSION_OPEN, ADMISSION_LEAVING, ADMISSION_DRAINING],
  );
});

test('a status counts dials of its first role and waiting dials, and names the slowest', async () => {
  const events = planeEvents();
  await using client = await asking({ recent: new Recent(events) });
  for (const [id, ms] of [
    ['quick', 1],
    ['slow', 900],
    ['slower', 1200],
  ] as const) {
    events.emit('dial:start', 'gateway', dial(id));
    events.emit('dial:start', 'hub', dial(id));
    events.emit('dial:end', 'hub', dial(id), { ms: ms / 2 });
    const error = new DialError('connection_timeout', 'i/o timeout');
    events.emit('dial:end', 'gateway', dial(id), { ms, ...(id === 'slow' && { error }) });
  }
  events.emit('dial:start', 'gateway', dial('waiting'));
  events.emit('dial:park', dial('waiting'));
  const { dialRates, slowest, pendingDials, parkedDials } = await client.admin.getStatus({});
  assert.deepEqual([pendingDials, parkedDials], [1, 1]);
  assert.deepEqual(
    slowest.map(({ dialId, ms, error }) => [dialId, ms, error?.code]),
    [
      ['slower', 1200, undefined],
      ['slow', 900, 'connection_timeout'],
      ['quick', 1, undefined],
    ],
  );
  assert.deepEqual(
    dialRates.map(({ role, dials: count, failures }) => [role, count, failures]),
    [
      [ROLE_GATEWAY, 3, 1],
      [ROLE_GATEWAY, 3, 1],
    ],
  );
  const [rate] = dialRates;
  assert.equal(rate?.dialsPerSecond, (3 * 1000) / (rate?.windowMs ?? 0));
});
