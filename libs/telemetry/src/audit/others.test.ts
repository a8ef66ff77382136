import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  DialError,
  dialLog,
  NotAuthorised,
  type PlaneEvents,
  type Principal,
  planeEvents,
  type SessionInfo,
} from '@isthmus/tunnel';
import { request } from '../testing/dial.ts';
import { auditDials } from './dials.ts';
import type { OtherRecord, TrailRecord } from './other-records.ts';
import { auditOthers, REFUSAL_BURST } from './others.ts';

const AGENT: Principal = { tenant: 'acme', role: 'agent', name: 'edge-1', rule: 'acme.yaml: agents[0].certificates' };
const CALLER: Principal = { tenant: 'acme', role: 'caller', name: 'api', rule: 'acme.yaml: callers[0]' };
const beyond = new NotAuthorised('cidr 0.0.0.0/0 is beyond 10.0.0.0/8', {
  rule: 'acme.yaml: claims.cidr',
  principal: AGENT,
});

/** Returns the records that events produce, without their times. */
function audited(emit: (events: PlaneEvents) => void): Omit<OtherRecord, 'time'>[] {
  const events = planeEvents();
  const records: Omit<OtherRecord, 'time'>[] = [];
  const audit = auditOthers(events, 'hub-1', ({ time, ...record }) => {
    assert.ok(Math.abs(Date.parse(time) - Date.now()) < 60_000, time);
    records.push(record);
  });
  emit(events);
  audit.end();
  assert.deepEqual(events.eventNames(), []);
  return records;
}

test('a refusal names the principal or tenant, the rule and the destination, also where another error wraps them', () => {
  const wrapped = new Error('the agent may not connect', { cause: beyond });
  const records = audited((events) => {
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
  const records = audited((events) => {
    for (let n = 0; n < 5000; n++) events.emit('refused', 'agents', `10.0.0.9:${n}`, new Error('no certificate'));
    events.emit('refused', 'agents', '10.0.0.10:1', beyond);
  });
  const singles = records.filter(({ record }) => record === 'refusal');
  assert.equal(singles.length, REFUSAL_BURST.most + 1);
  assert.equal((singles.at(-1) as { readonly tenant?: string }).tenant, 'acme');
  assert.deepEqual(records.at(-1), {
    record: 'refusals',
    process: 'hub-1',
    of: 'agents',
    count: 5000 - REFUSAL_BURST.most,
  });
});

test("an operator's probe is no refusal", () => {
  const records = audited((events) => {
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
  const records = audited((events) => {
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
  const others = auditOthers(events, 'gw-1', (record) => records.push(record));
  const dials = auditDials(events, 'gw-1', (record) => records.push(record), others.admits);
  const denial = new NotAuthorised('dial.deny[0] forbids it', { rule: 'acme.yaml: dial.deny[0]', principal: CALLER });
  const error = new DialError('destination_ip_prohibited', denial.message, { cause: denial });
  const caller = { via: 'grpc', identity: 'CN=api', principal: CALLER } as const;
  const dial = { ...request, tenant: 'acme', caller, log: dialLog() };
  for (let n = 0; n < 1000; n++) events.emit('dial:end', 'gateway', dial, { ms: 0, error });
  const other = { ...dial, tenant: 'other', log: dialLog() };
  events.emit('dial:end', 'gateway', other, { ms: 0, error: new DialError('connection_limit_reached', 'too many') });
  for (let n = 0; n < 50; n++)
    events.emit('dial:end', 'gateway', dial, { ms: 0, error: new DialError('dns_error', 'no such host') });
  dials.end();
  others.end();
  const outcomes = records.map((record) => ('record' in record ? record : `${record.tenant} ${record.outcome}`));
  const { time: _, ...count } = records.at(-1) as OtherRecord;
  assert.deepEqual(outcomes.slice(0, -1), [
    ...Array.from({ length: REFUSAL_BURST.most }, () => 'acme destination_ip_prohibited'),
    'other connection_limit_reached',
    ...Array.from({ length: 50 }, () => 'acme dns_error'),
  ]);
  const left = { of: 'dials of tenant acme', count: 1000 - REFUSAL_BURST.most };
  assert.deepEqual(count, { record: 'refusals', process: 'gw-1', ...left });
  const [first] = records;
  assert.ok(first && !('record' in first));
  assert.equal(first.rule, 'acme.yaml: dial.deny[0]');
  assert.deepEqual(first.caller, { via: 'grpc', identity: 'CN=api', principal: 'acme/caller/api', rule: CALLER.rule });
});
