import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AttemptRecord, DialError, type DialFailure, type DialLog, dialLog } from '@isthmus/tunnel';
import { agent, beginning, dial, samples, server } from './testing.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const sampled = `00-${TRACE}-00f067aa0ba902b7-01`;

function attempt(kind: AttemptRecord['kind'], outcome: AttemptRecord['outcome'], ms = 1): AttemptRecord {
  return { kind, sessionId: 's1', agentId: 'a1', hubId: 'h1', start: 0, ms, outcome };
}

function logOf(parkedMs: number, ...attempts: AttemptRecord[]): DialLog {
  return { parkedMs, attempts };
}

/** Returns how many observations each series of the dial latency has. */
async function counts(metrics: Parameters<typeof beginning>[0]) {
  return beginning(metrics, 'isthmus_dial_latency_seconds_count');
}

test('a dial is observed by phase and outcome, and each attempt by its own outcome', async () => {
  const { events, metrics } = server();
  assert.deepEqual(await counts(metrics), {});
  const timing = { hubMs: 4, agentMs: 3, dnsMs: 1, connectMs: 2 };
  const log = logOf(20, attempt('first', 'failed'), attempt('retry', 'overtaken'), attempt('hedge', 'established'));
  events.emit('dial:end', 'gateway', { ...dial, log }, { ms: 30, timing });
  // The hub in the same process reports the same again.
  events.emit('dial:end', 'hub', dial, { ms: 4, timing });
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="established"}': 1,
    '{phase="hub",outcome="established"}': 1,
    '{phase="agent",outcome="established"}': 1,
    '{phase="dns",outcome="established"}': 1,
    '{phase="connect",outcome="established"}': 1,
    '{phase="park",outcome="established"}': 1,
    '{phase="attempt",outcome="failed"}': 1,
    '{phase="attempt",outcome="overtaken"}': 1,
    '{phase="attempt",outcome="established"}': 1,
  });
  assert.deepEqual(await beginning(metrics, 'isthmus_dial_latency_seconds_sum{phase="hub"'), {
    ',outcome="established"}': 0.004,
  });
});

test('a phase that is not reported is not observed, and a part observes its own total only once', async () => {
  const { events, metrics } = server({ role: 'hub' });
  events.emit('dial:end', 'hub', dial, { ms: 4, timing: { hubMs: 4, agentMs: 3 } });
  events.emit('dial:end', 'hub', dial, { ms: 4, timing: {} });
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="established"}': 2,
    '{phase="agent",outcome="established"}': 1,
  });
});

test('a failed dial and an abandoned dial have different outcomes', async () => {
  const { events, metrics } = server();
  const error = new DialError('connection_timeout', 'i/o timeout');
  const failed = attempt('first', 'failed');
  const ended = (failure: DialFailure, ...attempts: AttemptRecord[]) => {
    events.emit('dial:end', 'gateway', { ...dial, log: logOf(0, ...attempts) }, { ms: 1, error, failure });
  };
  ended('error', failed);
  ended('abandoned', failed, attempt('retry', 'overtaken'));
  assert.deepEqual(await counts(metrics), {
    '{phase="total",outcome="failed"}': 1,
    '{phase="attempt",outcome="failed"}': 2,
    '{phase="total",outcome="abandoned"}': 1,
    '{phase="attempt",outcome="abandoned"}': 1,
  });
  const attempts = await beginning(metrics, 'isthmus_dial_attempts_total');
  assert.equal(Object.keys(attempts).length, 16);
  assert.deepEqual(
    Object.entries(attempts).filter(([, count]) => count > 0),
    [
      ['{kind="first",outcome="failed"}', 2],
      ['{kind="retry",outcome="abandoned"}', 1],
    ],
  );
});

test('buckets reach from 100 µs to 30 s', async () => {
  const { events, metrics } = server();
  for (const ms of [0.09, 29_000, 31_000]) events.emit('dial:end', 'gateway', { ...dial, log: dialLog() }, { ms });
  const buckets = await beginning(metrics, 'isthmus_dial_latency_seconds_bucket');
  const below = (le: string) => buckets[`{le="${le}",phase="total",outcome="established"}`];
  assert.deepEqual([below('0.0001'), below('10'), below('30'), below('+Inf')], [1, 1, 2, 3]);
});

test('exemplars name traces that are kept, and appear only in OpenMetrics', async () => {
  const { events, metrics } = server();
  const end = (ms: number, traceparent?: string) =>
    events.emit('dial:end', 'gateway', { ...dial, log: dialLog(), ...(traceparent && { traceparent }) }, { ms });
  end(3, sampled);
  // None of these replaces the exemplar.
  for (const traceparent of [undefined, `00-${'1'.repeat(32)}-00f067aa0ba902b7-00`, 'nonsense']) end(4, traceparent);
  const open = await metrics.render('application/openmetrics-text');
  const exemplars = open.body.split('\n').filter((line) => / # \{/.test(line));
  assert.equal(exemplars.length, 1);
  assert.match(
    exemplars[0] ?? '',
    /^isthmus_dial_latency_seconds_bucket\{le="0\.005",.*\} 4 # \{trace_id="4bf92f3577b34da6a3ce929d0e0e4736"\} 0\.003 \d+\.\d{3}$/,
  );
  assert.doesNotMatch((await metrics.render()).body, /trace_id/);
});

test('a dial whose trace is kept because it failed or was slow is an exemplar even if it was not sampled', async () => {
  const traceparent = sampled.replace(/01$/, '00');
  const error = new DialError('connection_refused', 'connection refused');
  for (const [keptAfter, expected] of [[1000, ['0.5', '2.5']] as const, [Number.POSITIVE_INFINITY, []] as const]) {
    const { events, metrics } = server({ keptAfter });
    const end = (ms: number, failed?: DialError) => {
      const outcome = { ms, ...(failed && { error: failed }) };
      events.emit('dial:end', 'gateway', { ...dial, log: dialLog(), traceparent }, outcome);
    };
    end(5);
    end(400, error);
    end(2000);
    const { body } = await metrics.render('application/openmetrics-text');
    const bounds = [...body.matchAll(/le="([^"]+)".* # \{trace_id/g)].map(([, le]) => le);
    assert.deepEqual(bounds.sort(), expected);
  }
});

test('parked dials are counted, currently and in total', async () => {
  const { events, metrics } = server();
  for (let i = 0; i < 3; i++) events.emit('dial:park', dial);
  events.emit('dial:unpark', dial);
  assert.deepEqual(await beginning(metrics, 'isthmus_dials_parked'), { '': 2 });
  assert.deepEqual(await beginning(metrics, 'isthmus_dial_parks_total'), { '': 3 });
});

test('what an operator tries counts nowhere, at gateway, hub and agent', async () => {
  const error = new DialError('connection_refused', 'no');
  const trial = { ...dial, trial: true, log: logOf(20, attempt('first', 'failed')) };
  const programs = [
    { by: 'gateway', ...server() },
    { by: 'hub', ...server({ role: 'hub' }) },
    { by: 'agent', ...agent() },
  ] as const;
  for (const { by, events, metrics } of programs) {
    const before = await samples(metrics);
    for (const outcome of [{ ms: 30 }, { ms: 30, error, failure: 'error' as const }]) {
      events.emit('dial:start', by, trial);
      events.emit('dial:park', trial);
      events.emit('dial:unpark', trial);
      events.emit('dial:end', by, trial, outcome);
    }
    const after = await samples(metrics);
    const changed = [...after].filter(([name, value]) => /dial|park/.test(name) && before.get(name) !== value);
    assert.deepEqual(changed, [], by);
  }
});
