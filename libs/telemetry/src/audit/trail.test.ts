import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { test } from 'node:test';
import {
  DialError,
  type DialLog,
  type DialRequest,
  dialLog,
  NotAuthorised,
  PlaneEnded,
  type PlaneEvents,
  type Principal,
  planeEvents,
  type SessionInfo,
  type TunnelInfo,
} from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { createLogger } from '../logging/logger.ts';
import { request } from '../testing/events.ts';
import type { AuditRecord, OtherRecord, TrailRecord } from './records.ts';
import { audit, auditTrail } from './trail.ts';

const dial: DialRequest = { ...request, log: dialLog() };

for (const how of ['closes', 'exits'] as const)
  test(`a process that ${how} writes the waiting records`, () => {
    const directory = mkdtempSync(join(tmpdir(), 'audit-'));
    try {
      const log = join(directory, 'audit.log');
      const events = planeEvents();
      const logger = createLogger({ name: 'gateway', format: 'json', verbosity: 0, destination: { write() {} } });
      const before = process.listeners('exit');
      const trail = auditTrail(events, { process: 'gw-1', of: { dials: true, others: false }, logger, log });
      assert.ok(trail);
      const [exit, ...others] = process.listeners('exit').filter((listener) => !before.includes(listener));
      assert.ok(exit);
      assert.deepEqual(others, []);
      events.emit('dial:end', 'gateway', dial, { ms: 1, error: new DialError('dns_error', 'no such host') });
      if (how === 'exits') exit.call(process, 0);
      trail.close();
      assert.deepEqual(process.listeners('exit'), before);
      assert.equal(JSON.parse(readFileSync(log, 'utf8')).outcome, 'dns_error');
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

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
function audited(emit: (events: PlaneEvents, running: ReturnType<typeof audit>) => void): AuditRecord[] {
  const events = planeEvents();
  const records: AuditRecord[] = [];
  const running = audit(events, 'gw-1', { dials: true, others: false }, (record) =>
    records.push(record as AuditRecord),
  );
  emit(events, running);
  running.end();
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
    events.emit('tunnel:close', { ...tunnel, dial }, { how: 'cut', by: 'operator', error: new PlaneEnded('') }, 7);
    tunnel.up = 10;
    tunnel.down = 20;
    events.emit('tunnel:close', tunnel, { how: 'closed', by: 'caller' }, 10);
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
  const records = audited((events, running) => {
    const tunnels = dials.map((dial) => tunnelOf(dial));
    for (const tunnel of tunnels) {
      events.emit('dial:end', 'gateway', tunnel.dial, { ms: 1, ...ROUTE });
      events.emit('tunnel:open', tunnel);
      tunnel.down = 7;
    }
    running.end();
    for (const tunnel of tunnels)
      events.emit('tunnel:close', tunnel, { how: 'cut', by: 'agent', error: new PlaneEnded('') }, 1);
  });
  assert.equal(records.length, 2);
  for (const { bytes, closed, cut } of records) {
    assert.deepEqual(bytes, { up: 0, down: 7 });
    assert.deepEqual([closed, cut], [{ by: 'plane', text: 'the gateway ended' }, 'gateway']);
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
    events.emit('tunnel:close', tunnel, { how: 'closed', by: 'caller' }, 10);
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
      events.emit('tunnel:close', tunnelOf(dial, role), { how: 'closed', by: 'caller' }, 1);
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

const AGENT: Principal = { tenant: 'acme', role: 'agent', name: 'edge-1', rule: 'acme.yaml: agents[0].certificates' };
const CALLER: Principal = { tenant: 'acme', role: 'caller', name: 'api', rule: 'acme.yaml: callers[0]' };
const beyond = new NotAuthorised('cidr 0.0.0.0/0 is beyond 10.0.0.0/8', {
  rule: 'acme.yaml: claims.cidr',
  principal: AGENT,
});

/** Returns the records that events produce, without their times. */
function othersOf(emit: (events: PlaneEvents) => void): Omit<OtherRecord, 'time'>[] {
  const events = planeEvents();
  const records: Omit<OtherRecord, 'time'>[] = [];
  const running = audit(events, 'hub-1', { dials: false, others: true }, ({ time, ...record }) => {
    assert.ok(Math.abs(Date.parse(time) - Date.now()) < 60_000, time);
    records.push(record as Omit<OtherRecord, 'time'>);
  });
  emit(events);
  running.end();
  assert.deepEqual(events.eventNames(), []);
  return records;
}

test('a refusal names the principal or tenant, the rule and the destination, also where another error wraps them', () => {
  const wrapped = new Error('the agent may not connect', { cause: beyond });
  const records = othersOf((events) => {
    events.emit('refused', 'agents', '10.0.0.9:4000', beyond);
    events.emit('refused', 'agents', '10.0.0.9:4001', wrapped);
    events.emit('refused', 'callers', '10.0.0.9:4003', beyond.dialling('10.0.0.5:443'));
    events.emit('refused', 'agents', '10.0.0.9:4002', new Error('got Bearer eyJhbGci.eyJpc3Mi.c2ln'));
    events.emit('refused', 'destination', 'db:1', new NotAuthorised('not db', { tenant: 'acme', destination: 'db:1' }));
  });
  const who = { tenant: 'acme', principal: 'acme/agent/edge-1', rule: 'acme.yaml: claims.cidr' };
  const base = { record: 'refusal', process: 'hub-1', where: 'agents' };
  assert.deepEqual(records, [
    { ...base, remote: '10.0.0.9:4000', ...who, text: beyond.message },
    { ...base, remote: '10.0.0.9:4001', ...who, text: wrapped.message },
    {
      ...base,
      ...{ where: 'callers', remote: '10.0.0.9:4003' },
      ...who,
      destination: '10.0.0.5:443',
      text: beyond.message,
    },
    { ...base, remote: '10.0.0.9:4002', text: 'got Bearer [redacted]' },
    { ...base, where: 'destination', remote: 'db:1', tenant: 'acme', destination: 'db:1', text: 'not db' },
  ]);
});

test('a flood of refusals gets a few records and a count, and crowds out no record of another tenant', () => {
  const records = othersOf((events) => {
    for (let n = 0; n < 5000; n++) events.emit('refused', 'agents', `10.0.0.9:${n}`, new Error('no certificate'));
    events.emit('refused', 'agents', '10.0.0.10:1', beyond);
  });
  const singles = records.filter(({ record }) => record === 'refusal');
  assert.equal(singles.length, TELEMETRY.auditRefusals.most + 1);
  assert.equal((singles.at(-1) as { readonly tenant?: string }).tenant, 'acme');
  assert.deepEqual(records.at(-1), {
    record: 'refusals',
    process: 'hub-1',
    of: 'agents',
    count: 5000 - TELEMETRY.auditRefusals.most,
  });
});

test("an operator's probe is no refusal", () => {
  const records = othersOf((events) => {
    events.emit('probe', '10.0.0.9:4000');
    events.emit('refused', 'agents', '10.0.0.9:4000', new Error('no certificate'));
  });
  assert.deepEqual(records, []);
});

test('sessions, operations and changes of tenants have records', () => {
  const session: SessionInfo = {
    sessionId: 's1',
    tenant: 'acme',
    agentId: 'edge-1',
    hubId: 'hub-1',
    identifiers: { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: true },
    protocol: 'link',
    remote: '10.0.0.9:4000',
    principal: AGENT,
    since: 1,
  };
  const operator = { identity: 'CN=alice', remote: '10.0.0.7:5000', tenant: 'acme' };
  const names = Array.from({ length: 10_000 }, (_, n) => `t${n}`);
  const records = othersOf((events) => {
    events.emit('session:open', session);
    events.emit('session:close', session, 'the certificate of acme/agent/edge-1 is revoked');
    events.emit('operation', { operator, call: 'Kick', tenant: 'acme', target: 'agent edge-1', outcome: 'done' });
    events.emit('operation', { operator, call: 'Drain', outcome: 'refused', text: 'it is for operators of the plane' });
    events.emit('tenants', { changed: names, gone: ['old'], inForce: 10_000 });
    events.emit('tenants:failure', 'bad.yaml:3:1: unknown field x', 'acme');
  });
  const of = { session: 's1', tenant: 'acme', agent: 'edge-1', principal: 'acme/agent/edge-1', rule: AGENT.rule };
  const link = { protocol: 'link', remote: '10.0.0.9:4000' };
  const base = { process: 'hub-1' };
  assert.deepEqual(records, [
    { ...base, record: 'session', state: 'opened', ...of, ...link },
    {
      ...base,
      record: 'session',
      state: 'closed',
      ...of,
      ...link,
      text: 'the certificate of acme/agent/edge-1 is revoked',
    },
    { ...base, record: 'operation', operator, call: 'Kick', tenant: 'acme', target: 'agent edge-1', outcome: 'done' },
    {
      ...base,
      record: 'operation',
      operator,
      call: 'Drain',
      outcome: 'refused',
      text: 'it is for operators of the plane',
    },
    { ...base, record: 'tenants', changed: names.slice(0, 100), gone: ['old'] },
    { ...base, record: 'tenants', changed: [], gone: [], tenant: 'acme', problem: 'bad.yaml:3:1: unknown field x' },
  ]);
});

test('dials that the gateway refuses are bounded by tenant, and all others have their record', () => {
  const events = planeEvents();
  const records: TrailRecord[] = [];
  const running = audit(events, 'gw-1', { dials: true, others: true }, (record) => records.push(record));
  const denial = new NotAuthorised('dial.deny[0] forbids it', { rule: 'acme.yaml: dial.deny[0]', principal: CALLER });
  const error = new DialError('destination_ip_prohibited', denial.message, { cause: denial });
  const caller = { via: 'grpc', identity: 'CN=api', principal: CALLER } as const;
  const dial = { ...request, tenant: 'acme', caller, log: dialLog() };
  for (let n = 0; n < 1000; n++) events.emit('dial:end', 'gateway', dial, { ms: 0, error });
  const other = { ...dial, tenant: 'other', log: dialLog() };
  events.emit('dial:end', 'gateway', other, { ms: 0, error: new DialError('connection_limit_reached', 'too many') });
  for (let n = 0; n < 50; n++)
    events.emit('dial:end', 'gateway', dial, { ms: 0, error: new DialError('dns_error', 'no such host') });
  running.end();
  const outcomes = records.map((record) => ('record' in record ? record : `${record.tenant} ${record.outcome}`));
  const { time: _, ...count } = records.at(-1) as OtherRecord;
  assert.deepEqual(outcomes.slice(0, -1), [
    ...Array.from({ length: TELEMETRY.auditRefusals.most }, () => 'acme destination_ip_prohibited'),
    'other connection_limit_reached',
    ...Array.from({ length: 50 }, () => 'acme dns_error'),
  ]);
  const left = { of: 'dials of tenant acme', count: 1000 - TELEMETRY.auditRefusals.most };
  assert.deepEqual(count, { record: 'refusals', process: 'gw-1', ...left });
  const [first] = records;
  assert.ok(first && !('record' in first));
  assert.equal(first.rule, 'acme.yaml: dial.deny[0]');
  assert.deepEqual(first.caller, { via: 'grpc', identity: 'CN=api', principal: 'acme/caller/api', rule: CALLER.rule });
});
