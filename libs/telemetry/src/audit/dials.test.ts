import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  DialError,
  type DialLog,
  type DialRequest,
  dialLog,
  type PlaneEvents,
  planeEvents,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { auditDials, type DialAudit } from './dials.ts';
import type { AuditRecord } from './record.ts';

const ROUTE = { agentId: 'a1', hubId: 'h1', sessionId: 's1' };
const NAMES = { agent: 'a1', hub: 'h1', session: 's1' };

function dialOf(log: DialLog = dialLog()): DialRequest {
  return {
    id: '00000000000000d1',
    tenant: 'default',
    destination: { host: 'fd00::1', port: 443 },
    deadline: Number.POSITIVE_INFINITY,
    signal: new AbortController().signal,
    caller: { via: 'http-connect', identity: 'CN=kube-apiserver' },
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    log,
  };
}

function tunnelOf(dial: DialRequest, role: TunnelInfo['role'] = 'gateway') {
  return { role, dial, ...ROUTE, since: Date.now(), up: 0, down: 0 };
}

/** Returns the records that events produce. */
function audited(emit: (events: PlaneEvents, audit: DialAudit) => void): AuditRecord[] {
  const events = planeEvents();
  const records: AuditRecord[] = [];
  const audit = auditDials(events, 'gw-1', (record) => records.push(record));
  emit(events, audit);
  audit.end();
  assert.deepEqual(events.eventNames(), []);
  return records;
}

test('an established dial gets its record when its tunnel ends', () => {
  const start = performance.now() + 1000;
  const log: DialLog = {
    attempts: [
      {
        kind: 'first',
        ...ROUTE,
        sessionId: 's0',
        start,
        ms: 2,
        outcome: 'failed',
        error: new DialError('connection_terminated', 'the session ended', { retryable: true }),
      },
      { kind: 'retry', ...ROUTE, start: start + 2, ms: 3, outcome: 'established' },
    ],
    parkedMs: 0,
  };
  const dial = dialOf(log);
  const since = Date.now();
  const [record, ...others] = audited((events) => {
    events.emit('dial:end', 'gateway', dial, { ms: 5.12345, ...ROUTE, timing: { dnsMs: 1, connectMs: 0.25 } });
    const tunnel = tunnelOf(dial);
    events.emit('tunnel:open', tunnel);
    events.emit('tunnel:close', { ...tunnel, dial }, { ms: 7, closedBy: 'plane' });
    tunnel.up = 10;
    tunnel.down = 20;
    events.emit('tunnel:close', tunnel, { ms: 10, closedBy: 'caller' });
  });
  assert.deepEqual(others, []);
  assert.ok(record);
  const { time, attempts, ...rest } = record;
  // It began 5.1 ms before it ended.
  assert.ok(since - 6 <= Date.parse(time) && Date.parse(time) <= Date.now() - 5, time);
  assert.deepEqual(rest, {
    dial: dial.id,
    tenant: 'default',
    caller: { via: 'http-connect', identity: 'CN=kube-apiserver' },
    destination: '[fd00::1]:443',
    gateway: 'gw-1',
    outcome: 'established',
    ...NAMES,
    durations: { dialMs: 5.123, dnsMs: 1, connectMs: 0.25, tunnelMs: 10 },
    bytes: { up: 10, down: 20 },
    closed: { by: 'caller' },
    trace: '0af7651916cd43dd8448eb211c80319c',
  });
  assert.deepEqual(
    attempts.map(({ startMs: _, ...attempt }) => attempt),
    [
      { kind: 'first', ...NAMES, session: 's0', ms: 2, outcome: 'connection_terminated', text: 'the session ended' },
      { kind: 'retry', ...NAMES, ms: 3, outcome: 'established' },
    ],
  );
  assert.ok(Math.abs((attempts[1]?.startMs ?? 0) - (attempts[0]?.startMs ?? 0) - 2) < 0.01);
});

test('a failed dial gets its record at once, with the route that failed last', () => {
  const error = new DialError('connection_refused', 'dial tcp: connect: connection refused');
  const failed = { kind: 'first', ...ROUTE, start: 0, ms: 1, outcome: 'failed', error } as const;
  const overtaken = { ...failed, kind: 'hedge', agentId: 'a2', outcome: 'overtaken' } as const;
  const [record] = audited((events) => {
    const dial = dialOf({ attempts: [failed, overtaken], parkedMs: 12 });
    events.emit('dial:end', 'gateway', dial, { ms: 13, error });
  });
  assert.ok(record);
  assert.equal(record.outcome, 'connection_refused');
  assert.equal(record.text, error.message);
  assert.equal(record.agent, 'a1');
  assert.deepEqual(record.durations, { dialMs: 13, parkedMs: 12 });
  assert.deepEqual([record.bytes, record.closed], [undefined, undefined]);
});

test('a dial that admission refused gets a record without agent, hub and session', () => {
  const [record] = audited((events) => {
    const error = new DialError('connection_limit_reached', 'tenant default has 2000 dials without an answer already');
    events.emit('dial:end', 'gateway', dialOf(), { ms: 0, error });
  });
  assert.ok(record);
  assert.equal(record.outcome, 'connection_limit_reached');
  assert.deepEqual(record.attempts, []);
  assert.ok(!('agent' in record) && !('hub' in record) && !('session' in record));
});

test('a dial that reached its destination after the caller had left is recorded', () => {
  const dial = dialOf();
  const [record, ...others] = audited((events) => {
    events.emit('dial:end', 'gateway', dial, { ms: 1, ...ROUTE });
    events.emit('dial:undelivered', dial);
    events.emit('dial:unasked');
  });
  assert.deepEqual(others, []);
  assert.equal(record?.outcome, 'established');
  assert.deepEqual(record?.bytes, { up: 0, down: 0 });
  assert.deepEqual(record?.closed, { by: 'caller', text: 'the caller left before the answer' });
});

test('each tunnel that is open when the gateway ends gets a record with its bytes so far', () => {
  const dials = [dialOf(), dialOf()];
  const records = audited((events, audit) => {
    const tunnels = dials.map((dial) => tunnelOf(dial));
    for (const tunnel of tunnels) {
      events.emit('dial:end', 'gateway', tunnel.dial, { ms: 1, ...ROUTE });
      events.emit('tunnel:open', tunnel);
      tunnel.down = 7;
    }
    audit.stopping();
    events.emit('tunnel:close', tunnels[0] as TunnelInfo, { ms: 1, closedBy: 'caller' });
    audit.end();
    for (const tunnel of tunnels) events.emit('tunnel:close', tunnel, { ms: 1, closedBy: 'plane' });
  });
  assert.equal(records.length, 2);
  for (const { bytes, closed } of records) {
    assert.deepEqual(bytes, { up: 0, down: 7 });
    assert.deepEqual(closed, { by: 'plane', text: 'the gateway ended' });
  }
});

test('a tunnel that moved has one record, with how often it did and where it was last', () => {
  const dial = dialOf();
  const moving = { dial, ...ROUTE, attached: true, moves: 0, kept: 0 };
  const [record, ...others] = audited((events) => {
    events.emit('dial:end', 'gateway', dial, { ms: 1, ...ROUTE });
    const tunnel = { ...tunnelOf(dial), resumable: moving };
    events.emit('tunnel:open', tunnel);
    for (const hubId of ['h2', 'h3']) {
      events.emit('tunnel:detach', moving, new Error('the link was lost'));
      Object.assign(moving, { hubId, sessionId: `s of ${hubId}`, moves: moving.moves + 1 });
      events.emit('tunnel:attach', moving, 40);
    }
    events.emit('tunnel:close', tunnel, { ms: 10, closedBy: 'caller' });
  });
  assert.deepEqual(others, []);
  const { agent, hub, session, moved } = record as AuditRecord;
  // The route that the dial took stays what it was.
  assert.deepEqual([{ agent, hub, session }, moved], [NAMES, { times: 2, hub: 'h3', session: 's of h3' }]);
});

test('hubs and agents write no records, in the same process or not', () => {
  const records = audited((events) => {
    const dial = dialOf();
    for (const role of ['hub', 'agent'] as const) {
      events.emit('dial:end', role, dial, { ms: 1, error: new DialError('dns_error', 'no such host') });
      events.emit('dial:end', role, dial, { ms: 1, ...ROUTE });
      events.emit('tunnel:open', tunnelOf(dial, role));
      events.emit('tunnel:close', tunnelOf(dial, role), { ms: 1, closedBy: 'caller' });
    }
  });
  assert.deepEqual(records, []);
});

test("an agent's text is shortened, and what looks like a secret is removed", () => {
  const [record] = audited((events) => {
    const error = new DialError('dns_error', `got Bearer eyJhbGci.eyJpc3Mi.c2ln ${'x'.repeat(1000)}`);
    events.emit('dial:end', 'gateway', dialOf(), { ms: 1, error });
  });
  assert.match(record?.text ?? '', /^got Bearer \[redacted\] x+$/);
  assert.equal(record?.text?.length, 500);
});

test('an invalid trace context is not recorded', () => {
  const records = audited((events) => {
    for (const traceparent of ['00-nonsense-01', 'x', '00-00000000000000000000000000000000-b7ad6b7169203331-01']) {
      const error = new DialError('dns_error', 'no such host');
      events.emit('dial:end', 'gateway', { ...dialOf(), traceparent }, { ms: 1, error });
    }
  });
  assert.deepEqual(
    records.map(({ trace }) => trace),
    [undefined, undefined, undefined],
  );
});
