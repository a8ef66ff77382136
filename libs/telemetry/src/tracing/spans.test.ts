import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  type AttemptRecord,
  DialError,
  type DialOutcome,
  type DialRequest,
  PlaneEnded,
  planeEvents,
} from '@isthmus/tunnel';
import { ROOT_CONTEXT, SpanKind, type Tracer } from '@opentelemetry/api';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { openTelemetry } from '../instrument.ts';
import { request, withEnvironment } from '../testing/events.ts';
import { otlpReceiver } from '../testing/otlp-receiver.ts';
import { ATTRIBUTES, KINDS, keepDials, spanTracer } from './spans.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const SLOW_MS = 1000;

const refused = new DialError('connection_refused', 'dial tcp 10.0.0.1:443: connect: connection refused');

interface Case {
  readonly traceparent?: string;
  readonly sampler?: string;
  readonly slowMs?: number;
  readonly dial?: DialRequest;
}

/** Runs one dial of a gateway. Returns the trace context that it passed on, and the spans that the collector got. */
async function trace(outcome: DialOutcome, { traceparent, sampler, slowMs = SLOW_MS, dial: told = request }: Case) {
  await using receiver = await otlpReceiver();
  using _environment = withEnvironment({
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint,
    OTEL_TRACES_SAMPLER: sampler,
    OTEL_TRACES_SAMPLER_ARG: '0',
  });
  const { tracer, shutdown } = await openTelemetry({
    ...{
      program: 'frontend-gw',
      version: '1',
      role: 'gateway',
      logger: { info() {}, warn() {} },
      events: planeEvents(),
    },
    ...(slowMs > 0 && { slowMs }),
  });
  assert.ok(tracer);
  const span = tracer.start('gateway.dial', traceparent === undefined ? told : { ...told, traceparent });
  span.end(outcome);
  await shutdown();
  return { passedOn: span.traceparent ?? '', spans: receiver.spans };
}

const UNSAMPLED = `00-${TRACE}-${PARENT}-00`;

for (const [what, outcome, kept] of [
  ['that failed', { ms: 1, error: refused, failure: 'error' }, 'failed'],
  ['that was slow', { ms: SLOW_MS + 1 }, 'slow'],
] as const) {
  test(`a dial ${what} is kept under its own ids, even if its caller does not sample`, async () => {
    const { passedOn, spans } = await trace(outcome, { traceparent: UNSAMPLED });
    const [span, ...others] = spans;
    assert.ok(span);
    assert.deepEqual(others, []);
    assert.equal(passedOn, `00-${TRACE}-${span.spanId}-00`);
    assert.deepEqual([span.name, span.traceId, span.parentSpanId, span.kind], ['gateway.dial', TRACE, PARENT, 2]);
    assert.equal(span.attributes['isthmus.dial.kept'], kept);
    assert.ok(Math.abs(span.end - span.start - outcome.ms) < 0.01);
  });

  test(`a dial ${what} is kept even if its own trace is not sampled`, async () => {
    for (const sampler of ['parentbased_traceidratio', 'traceidratio', 'always_off']) {
      const { passedOn, spans } = await trace(outcome, { sampler });
      assert.deepEqual(
        spans.map(({ traceId, spanId, parentSpanId }) => [`00-${traceId}-${spanId}-00`, parentSpanId]),
        [[passedOn, '']],
        sampler,
      );
    }
  });
}

test('a fast dial is not kept, and no dial is kept if keeping is off', async () => {
  assert.deepEqual((await trace({ ms: SLOW_MS }, { traceparent: UNSAMPLED })).spans, []);
  assert.deepEqual((await trace({ ms: 60_000, error: refused }, { traceparent: UNSAMPLED, slowMs: 0 })).spans, []);
});

test('a sampled dial is exported once', async () => {
  const { spans } = await trace({ ms: 60_000, error: refused }, { traceparent: `00-${TRACE}-${PARENT}-01` });
  assert.deepEqual(
    spans.map(({ attributes }) => attributes['isthmus.dial.kept']),
    [undefined],
  );
});

test('a kept dial shows its whole log: attempts with their times, parking, and where the time went', async () => {
  const now = performance.now();
  const attempts: AttemptRecord[] = [
    {
      kind: 'first',
      sessionId: 's1',
      agentId: 'a1',
      hubId: 'h1',
      start: now,
      ms: 5,
      outcome: 'failed',
      error: new DialError('connection_terminated', 'gone', { retryable: true }),
    },
    {
      kind: 'retry',
      sessionId: 's2',
      agentId: 'a2',
      hubId: 'h2',
      start: now + 5.5,
      ms: 1994,
      outcome: 'established',
    },
  ];
  const log = { attempts, parkedMs: 250 };
  const timing = { dnsMs: 1500, connectMs: 400, agentMs: 1950, hubMs: 1990 };
  const outcome = { ms: 2250, agentId: 'a2', sessionId: 's2', hubId: 'h2', timing };
  const { spans } = await trace(outcome, { traceparent: UNSAMPLED, dial: { ...request, log } });
  const [span] = spans;
  assert.ok(span);
  const { attributes, events } = span;
  assert.equal(attributes['isthmus.dial.attempts'], 2);
  assert.equal(attributes['isthmus.dial.parked_ms'], 250);
  assert.equal(attributes['isthmus.dial.dns_ms'], 1500);
  assert.equal(attributes['isthmus.dial.hub_ms'], 1990);
  assert.deepEqual(
    events.map(({ attributes }) => attributes),
    [
      {
        'isthmus.attempt.kind': 'first',
        'isthmus.attempt.number': 1,
        'isthmus.attempt.outcome': 'failed',
        'isthmus.agent.id': 'a1',
        'isthmus.session.id': 's1',
        'isthmus.hub.id': 'h1',
        'isthmus.attempt.ms': 5,
        'error.type': 'connection_terminated',
      },
      {
        'isthmus.attempt.kind': 'retry',
        'isthmus.attempt.number': 2,
        'isthmus.attempt.outcome': 'established',
        'isthmus.agent.id': 'a2',
        'isthmus.session.id': 's2',
        'isthmus.hub.id': 'h2',
        'isthmus.attempt.ms': 1994,
      },
    ],
  );
  const [first, second] = events;
  assert.ok(first && second);
  assert.ok(Math.abs(second.time - first.time - 5.5) < 0.01, `${second.time - first.time} ms apart`);
});

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
  spans.tunnel(tunnel, { how: 'cut', by: 'operator', error: new PlaneEnded('') }, 1);
  const caller = { via: 'api-server', identity: '10.0.0.9:4711', remote: '10.0.0.9:4711', serverName: 'a' } as const;
  const ofClient = { ...tunnel, resumable: undefined, role: 'api-server' as const, dial: { ...tunnel.dial, caller } };
  spans.tunnel(ofClient, { how: 'cut', by: 'operator', error: new PlaneEnded('') }, 1);
  spans.unreached(ofClient.dial, new DialError('connection_refused', ''), 1);
  const keep = keepDials((_ids, name, options, parent) => tracer.startSpan(name, options, parent), 1);
  keep({ span: { traceId: '', spanId: '', traceFlags: 0 }, parent: ROOT_CONTEXT, start: 0, dial, outcome });
}

test('docs/TRACES.md lists the spans and their kinds', () => {
  const listed = Object.fromEntries(table('Spans').map(([name, kind = '']) => [names(name)[0], kind.toUpperCase()]));
  assert.deepEqual(listed, Object.fromEntries(Object.entries(KINDS).map(([name, kind]) => [name, SpanKind[kind]])));
});

test('docs/TRACES.md lists every attribute and its spans', () => {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  tellAll(provider.getTracer('test'));
  const told = new Map<string, Set<string>>();
  const note = (on: string, attributes: object) => {
    for (const name of Object.keys(attributes)) told.set(name, (told.get(name) ?? new Set()).add(on));
  };
  for (const { name, attributes, events } of exporter.getFinishedSpans()) {
    note(name, attributes);
    for (const event of events) note(event.name, event.attributes ?? {});
  }
  const spans = (cell = '') => {
    const named = new Set(names(cell));
    return cell.startsWith('all') ? new Set(Object.keys(KINDS).filter((name) => !named.has(name))) : named;
  };
  const listed = table('Attributes').flatMap(([attributes, on]) =>
    names(attributes).map((name) => [name, spans(on)] as const),
  );
  assert.deepEqual(new Map(listed), told);
  assert.deepEqual(new Set(told.keys()), new Set(ATTRIBUTES));
});
