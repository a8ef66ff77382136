import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { type AuditRecord, auditDials } from '@isthmus/telemetry';
import {
  type AttemptRecord,
  DIAL_ERRORS,
  DialError,
  type DialErrorCode,
  type DialRequest,
  type PlaneEvents,
  planeEvents,
} from '@isthmus/tunnel';
import { ROOT } from './harness/index.ts';
import { invalid } from './plane/audit-records.ts';

const ROUTE = { agentId: 'a1', hubId: 'h1', sessionId: 's1' };

function dialOf(...attempts: AttemptRecord[]): DialRequest {
  return {
    id: '00000000000000d1',
    tenant: 'default',
    destination: { host: '10.0.0.1', port: 443 },
    deadline: Number.POSITIVE_INFINITY,
    signal: new AbortController().signal,
    caller: { via: 'grpc', identity: 'uds' },
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    log: { attempts, parkedMs: 3 },
  };
}

function recordOf(emit: (events: PlaneEvents) => void): AuditRecord {
  const events = planeEvents();
  const records: AuditRecord[] = [];
  const audit = auditDials(events, 'gw-1', (record) => records.push(record));
  emit(events);
  audit.end();
  assert.equal(records.length, 1);
  return records[0] as AuditRecord;
}

const started = { ...ROUTE, start: 0, ms: 1 };

for (const code of Object.keys(DIAL_ERRORS) as DialErrorCode[]) {
  test(`the record of a dial that failed with ${code} matches the schema`, () => {
    const error = new DialError(code, 'it failed');
    const dial = dialOf({ kind: 'first', ...started, outcome: 'failed', error });
    const record = recordOf((events) => events.emit('dial:end', 'gateway', dial, { ms: 2, error }));
    assert.equal(invalid(record), undefined);
    const refused = recordOf((events) => events.emit('dial:end', 'gateway', dialOf(), { ms: 0, error }));
    assert.equal(invalid(refused), undefined);
  });
}

test('the record of a tunnel matches the schema, however it ended', () => {
  const dial = dialOf(
    { kind: 'first', ...started, outcome: 'overtaken' },
    { kind: 'hedge', ...started, outcome: 'established' },
  );
  const timing = { dnsMs: 1, connectMs: 2, agentMs: 3, hubMs: 4 };
  const tunnel = { role: 'gateway', dial, ...ROUTE, since: Date.now(), up: 1, down: 2 } as const;
  const endings: ((events: PlaneEvents) => void)[] = [
    (events) => events.emit('tunnel:close', tunnel, { ms: 1, closedBy: 'caller' }),
    (events) => events.emit('tunnel:close', tunnel, { ms: 1, closedBy: 'plane', error: new Error('lost') }),
    // No end at all: the gateway stops first.
    () => {},
  ];
  for (const end of endings) {
    const record = recordOf((events) => {
      events.emit('dial:end', 'gateway', dial, { ms: 5, ...ROUTE, timing });
      events.emit('tunnel:open', tunnel);
      end(events);
    });
    assert.equal(invalid(record), undefined);
  }
});

test('the schema rejects what is not a record', () => {
  const good = recordOf((events) => {
    const error = new DialError('dns_error', 'no such host');
    events.emit('dial:end', 'gateway', dialOf(), { ms: 2, error });
  });
  for (const bad of [
    { ...good, outcome: 'sunshine' },
    { ...good, outcome: 'established' },
    { ...good, bytes: { up: 0, down: 0 } },
    { ...good, more: 1 },
    { ...good, time: 'yesterday' },
    { ...good, dial: undefined },
  ]) {
    assert.notEqual(invalid(JSON.parse(JSON.stringify(bad))), undefined, JSON.stringify(bad));
  }
});

test('the examples of docs/AUDIT.md are records', () => {
  const document = readFileSync(`${ROOT}docs/AUDIT.md`, 'utf8');
  const examples = [...document.matchAll(/^```json\n(.*?)^```$/gms)].map(([, text = '']) => JSON.parse(text));
  assert.ok(examples.length >= 3);
  for (const example of examples) assert.equal(invalid(example), undefined, example.dial);
});

test('docs/AUDIT.md has a line for each field of the schema', () => {
  const { properties } = JSON.parse(readFileSync(`${ROOT}docs/audit.schema.json`, 'utf8'));
  const lines = readFileSync(`${ROOT}docs/AUDIT.md`, 'utf8').split('\n');
  const named = lines.flatMap((line) => [...(/^\| ((?:`\w+`(?:, )?)+) \|/.exec(line)?.[1]?.matchAll(/\w+/g) ?? [])]);
  assert.deepEqual(named.map(String), Object.keys(properties));
});
