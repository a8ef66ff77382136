import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { type AuditRecord, audit, type OtherRecord } from '@isthmus/telemetry';
import {
  type AttemptRecord,
  DIAL_ERRORS,
  DialError,
  type DialErrorCode,
  type DialRequest,
  NotAuthorised,
  PlaneEnded,
  type PlaneEvents,
  type Principal,
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
  const running = audit(events, 'gw-1', { dials: true, others: false }, (record) =>
    records.push(record as AuditRecord),
  );
  emit(events);
  running.end();
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
  const resumable = { dial, ...ROUTE, attached: true, moves: 0, kept: 0 };
  const tunnel = { role: 'gateway', dial, ...ROUTE, since: Date.now(), up: 1, down: 2, resumable } as const;
  const endings: ((events: PlaneEvents) => void)[] = [
    (events) => events.emit('tunnel:close', tunnel, { how: 'closed', by: 'caller' }, 1),
    (events) => events.emit('tunnel:close', tunnel, { how: 'cut', by: 'agent', error: new PlaneEnded('lost') }, 1),
    () => {
      Object.assign(resumable, { moves: 3, hubId: 'h2' });
    },
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
    assert.equal(record.moved?.times ?? 0, resumable.moves);
  }
});

const AGENT: Principal = { tenant: 'acme', role: 'agent', name: 'a1', rule: 'acme.yaml: agents[0]' };
const CALLER: Principal = { tenant: 'acme', role: 'caller', name: 'api', rule: 'acme.yaml: callers[0]' };

test('the records of dials with principals match the schema', () => {
  const dial = { ...dialOf(), caller: { via: 'grpc', identity: 'CN=api', principal: CALLER } } as const;
  const tunnel = { role: 'gateway', dial, ...ROUTE, since: Date.now(), up: 1, down: 2 } as const;
  const record = recordOf((events) => {
    events.emit('dial:end', 'gateway', dial, { ms: 5, ...ROUTE, agentPrincipal: 'acme/agent/a1' });
    events.emit('tunnel:open', tunnel);
    events.emit('tunnel:close', tunnel, { how: 'closed', by: 'caller' }, 1);
  });
  assert.equal(invalid(record), undefined);
  const cause = new NotAuthorised('it may not', { rule: 'acme.yaml: dial.deny[0]', principal: CALLER });
  const error = new DialError('destination_ip_prohibited', 'it may not', { cause });
  const refused = recordOf((events) => events.emit('dial:end', 'gateway', dial, { ms: 0, error }));
  assert.equal(invalid(refused), undefined);
  assert.equal(refused.rule, 'acme.yaml: dial.deny[0]');
});

test('the records of refusals, sessions, operations and tenants match the schema', () => {
  const events = planeEvents();
  const records: OtherRecord[] = [];
  const running = audit(events, 'hub-1', { dials: false, others: true }, (record) =>
    records.push(record as OtherRecord),
  );
  const refusal = new NotAuthorised('it may not', { rule: 'acme.yaml: claims.cidr', principal: AGENT });
  for (let n = 0; n < 30; n++) events.emit('refused', 'agents', '10.0.0.9:1', refusal);
  events.emit('refused', 'callers', '10.0.0.9:1', new Error('no certificate'));
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: true };
  const info = { sessionId: 's1', tenant: 'acme', agentId: 'a1', hubId: 'hub-1', identifiers, since: 1 } as const;
  const session = { ...info, protocol: 'packets', remote: '10.0.0.9:1', principal: AGENT } as const;
  events.emit('session:open', session);
  events.emit('session:close', session, 'the tenant is gone');
  const operator = { identity: 'CN=alice', remote: '10.0.0.7:5000' };
  events.emit('operation', {
    operator,
    call: 'Kick',
    tenant: 'acme',
    target: 'agent a1',
    outcome: 'done',
    text: 'test',
  });
  const limited = { ...operator, tenant: 'acme' };
  events.emit('operation', { operator: limited, call: '/debug/pprof/heap', outcome: 'refused', text: 'it may not' });
  events.emit('tenants', { changed: ['acme'], gone: [], inForce: 1 });
  events.emit('tenants:failure', 'x.yaml:1:1: no', 'acme');
  events.emit('tenants:failure', 'x.yaml:1:1: no', undefined);
  running.end();
  for (const record of records) assert.equal(invalid(record), undefined, JSON.stringify(record));
  assert.deepEqual([...new Set(records.map(({ record }) => record))].sort(), [
    ...['operation', 'refusal', 'refusals', 'session', 'tenants'],
  ]);
  assert.notEqual(invalid({ ...records[0], record: 'sunshine' }), undefined);
  assert.notEqual(invalid({ ...records[0], text: undefined, more: 1 }), undefined);
});

test("the records of clients' connections to API servers match the schema, however they ended", () => {
  const events = planeEvents();
  const records: OtherRecord[] = [];
  const running = audit(events, 'hub-1', { dials: false, others: false }, (record) =>
    records.push(record as OtherRecord),
  );
  const caller = {
    via: 'api-server',
    identity: '10.0.0.9:1',
    remote: '10.0.0.9:1',
    serverName: 'api.example',
  } as const;
  const dial = { ...dialOf(), caller };
  const tunnel = {
    role: 'api-server',
    dial,
    agentId: 'direct',
    sessionId: '',
    hubId: 'h1',
    since: 0,
    up: 1,
    down: 2,
  } as const;
  const error = new PlaneEnded('ended by an operator', { by: 'operator' });
  for (const outcome of [
    { how: 'closed', by: 'caller' },
    { how: 'failed', by: 'destination', error },
    { how: 'cut', by: 'operator', error },
  ] as const) {
    const one = { ...tunnel };
    events.emit('tunnel:open', one);
    events.emit('tunnel:close', one, outcome, 5);
  }
  events.emit('api-server:failure', dial, new DialError('connection_refused', 'connect: connection refused'), 3);
  events.emit('tunnel:open', tunnel);
  running.end();
  assert.equal(records.length, 5);
  for (const record of records) assert.equal(invalid(record), undefined, JSON.stringify(record));
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
    { ...good, moved: { times: 1, hub: 'h1', session: 's1' } },
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
  assert.ok(examples.length >= 5);
  for (const example of examples) assert.equal(invalid(example), undefined, JSON.stringify(example));
});

test('docs/AUDIT.md has a line for each field of a dial, and the schema explains those of the other records', () => {
  const { $defs } = JSON.parse(readFileSync(`${ROOT}docs/audit.schema.json`, 'utf8'));
  const sections = readFileSync(`${ROOT}docs/AUDIT.md`, 'utf8').split(/^##+ /m);
  const lines = sections.find((section) => section.startsWith('Fields'))?.split('\n') ?? [];
  const named = lines.flatMap((line) => [...(/^\| ((?:`\w+`(?:, )?)+) \|/.exec(line)?.[1]?.matchAll(/\w+/g) ?? [])]);
  assert.deepEqual(named.map(String), Object.keys($defs.dial.properties));
  for (const kind of ['refusal', 'refusals', 'session', 'operation', 'tenants', 'api-server']) {
    const { time, record, process, ...own } = $defs[kind].properties as Record<string, { description?: string }>;
    assert.ok(time && record && process);
    for (const [field, { description = '' }] of Object.entries(own))
      assert.notEqual(description, '', `${kind}.${field}`);
    assert.ok(
      sections.some((section) => section.startsWith(`\`${kind}\``)),
      kind,
    );
  }
});
