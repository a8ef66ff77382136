import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AttemptRecord, DialError, type DialOutcome, type DialRequest } from '@isthmus/tunnel';
import { request as dial } from '../testing/dial.ts';
import { otlpReceiver } from '../testing/otlp-receiver.ts';
import { openTelemetry } from './opentelemetry.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const SLOW_MS = 1000;

const error = new DialError('connection_refused', 'dial tcp 10.0.0.1:443: connect: connection refused');

interface Case {
  readonly traceparent?: string;
  readonly sampler?: string;
  readonly slowMs?: number;
  readonly dial?: DialRequest;
}

/** Runs one dial of a gateway. Returns the trace context that it passed on, and the spans that the collector got. */
async function trace(outcome: DialOutcome, { traceparent, sampler, slowMs = SLOW_MS, dial: told = dial }: Case) {
  await using receiver = await otlpReceiver();
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.endpoint, OTEL_TRACES_SAMPLER: sampler };
  const { tracer, shutdown } = await openTelemetry(
    { ...env, OTEL_TRACES_SAMPLER_ARG: '0' },
    { serviceName: 'frontend-gw', version: '1', role: 'gateway', ...(slowMs > 0 && { slowMs }) },
  );
  const span = tracer.start('gateway.dial', traceparent === undefined ? told : { ...told, traceparent });
  span.end(outcome);
  await shutdown();
  return { passedOn: span.traceparent ?? '', spans: receiver.spans };
}

const UNSAMPLED = `00-${TRACE}-${PARENT}-00`;

for (const [what, outcome, kept] of [
  ['that failed', { ms: 1, error, failure: 'error' }, 'failed'],
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
  assert.deepEqual((await trace({ ms: 60_000, error }, { traceparent: UNSAMPLED, slowMs: 0 })).spans, []);
});

test('a sampled dial is exported once', async () => {
  const { spans } = await trace({ ms: 60_000, error }, { traceparent: `00-${TRACE}-${PARENT}-01` });
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
  const { spans } = await trace(outcome, { traceparent: UNSAMPLED, dial: { ...dial, log } });
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
