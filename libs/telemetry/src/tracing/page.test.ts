import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { type AttemptRecord, DialError, type DialOutcome, type DialRequest } from '@isthmus/tunnel';
import { ROOT_CONTEXT, SpanKind, type Tracer } from '@opentelemetry/api';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { request } from '../testing/dial.ts';
import { ATTRIBUTES } from './attributes.ts';
import { keepDials } from './kept.ts';
import { KINDS, spanTracer } from './spans.ts';

const page = readFileSync(new URL('../../../../docs/TRACES.md', import.meta.url), 'utf8');

/** Returns the cells of the table below a heading, without its header row. */
function table(heading: string): string[][] {
  const [, section = ''] = page.split(`\n## ${heading}\n`);
  const rows = (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('|'));
  return rows.slice(2).map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const names = (cell = '') => Array.from(cell.matchAll(/`([^`]+)`/g), ([, name = '']) => name);

const error = new DialError('connection_timeout', 'dial tcp [::1]:443: i/o timeout');
const attempt: AttemptRecord = {
  kind: 'first',
  sessionId: 's1',
  agentId: 'a1',
  hubId: 'h1',
  start: performance.now(),
  ms: 1,
  outcome: 'failed',
  error,
};
const dial: DialRequest = {
  ...request,
  destination: { host: 'name', port: 443 },
  session: 's1',
  deadline: 0,
  log: { attempts: [attempt], parkedMs: 1 },
  caller: { via: 'grpc', identity: 'CN=kube-apiserver', remote: '::1:50000' },
};
const outcome: DialOutcome = {
  ms: 2000,
  error,
  failure: 'expired',
  agentId: 'a1',
  sessionId: 's1',
  hubId: 'h1',
  timing: { dnsMs: 1, connectMs: 1, agentMs: 2, hubMs: 3 },
};

/** Records everything that can be recorded about a dial. */
function tellAll(tracer: Tracer): void {
  const spans = spanTracer(tracer);
  const { hubId: _hub, timing, ...atAgent } = outcome;
  const { hubMs: _ms, ...agentTiming } = timing ?? {};
  spans.start('gateway.dial', dial).end(outcome);
  const { caller: _caller, log: _log, ...passedOn } = dial;
  spans.start('hub.dial', passedOn).end(outcome);
  const session = { agentId: 'a1', sessionId: 's1', hubId: 'h1' };
  for (const name of ['gateway.attach', 'hub.attach'] as const)
    spans.start(name, passedOn).end({ ms: 1, error, ...session });
  spans.start('agent.dial', passedOn).end({ ...atAgent, timing: agentTiming });
  spans.attempt(dial, attempt, 1).end(attempt);
  spans.step('agent.dns', dial, { start: 0, end: 1, error });
  spans.step('agent.connect', dial, { start: 1, end: 2, error, peer: { address: '::1', port: 443 } });
  const resumable = { dial, ...session, attached: true, moves: 1, kept: 0 };
  const tunnel = { role: 'gateway', dial, ...session, since: 0, up: 1, down: 2, resumable } as const;
  spans.tunnel(tunnel, { ms: 1, closedBy: 'plane', error });
  const keep = keepDials((_ids, name, options, parent) => tracer.startSpan(name, options, parent), 1);
  keep({ span: { traceId: '', spanId: '', traceFlags: 0 }, parent: ROOT_CONTEXT, start: 0, dial, outcome });
}

test('docs/TRACES.md lists the spans and their kinds', () => {
  const listed = Object.fromEntries(table('Spans').map(([name, kind = '']) => [names(name)[0], kind.toUpperCase()]));
  assert.deepEqual(listed, Object.fromEntries(Object.entries(KINDS).map(([name, kind]) => [name, SpanKind[kind]])));
});

test('docs/TRACES.md lists every attribute, with its type and its spans', () => {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  tellAll(provider.getTracer('test'));
  const told = new Map<string, { type: string; on: Set<string> }>();
  const note = (on: string, attributes: object) => {
    for (const [name, value] of Object.entries(attributes)) {
      const entry = told.get(name) ?? { type: typeof value, on: new Set() };
      told.set(name, { ...entry, on: entry.on.add(on) });
    }
  };
  for (const { name, attributes, events } of exporter.getFinishedSpans()) {
    note(name, attributes);
    for (const event of events) note(event.name, event.attributes ?? {});
  }
  const listed = table('Attributes').map(
    ([name, type, on]) => [names(name)[0], { type, on: new Set(names(on)) }] as const,
  );
  assert.deepEqual(new Map(listed), told);
  assert.deepEqual(new Set(told.keys()), new Set(ATTRIBUTES));
});
