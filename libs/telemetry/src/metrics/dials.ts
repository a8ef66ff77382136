import type { AttemptKind, AttemptRecord, DialOutcome, Role } from '@isthmus/tunnel';
import type { Subscriptions } from '../events.ts';
import type { Count, Durations, Families, Series } from './families.ts';

/** In seconds: from a dial within one process to one that never gets an answer. */
const DIAL_BUCKETS = [
  ...[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05],
  ...[0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
];

/** What a dial spends its time on. Each phase contains those after it. The hub reports `hub`; the agent reports `agent` and the rest. */
type Phase = 'total' | 'park' | 'attempt' | 'hub' | 'agent' | 'dns' | 'connect';

/** How a dial, or one of its attempts, ended. `abandoned`: the caller gave up. `overtaken`: another attempt was faster. */
const OUTCOMES = ['established', 'failed', 'abandoned', 'overtaken'] as const;
type Outcome = (typeof OUTCOMES)[number];

const KINDS: readonly AttemptKind[] = ['first', 'retry', 'hedge', 'direct'];

/**
 * Counts dials that failed, and measures how long dials take, by phase. Phases that only our own hubs and agents report are missing for others.
 * @param keptAfter in milliseconds. A dial that failed or took longer has a trace even if it was not sampled
 * @param attempts counts those of a gateway's dial
 */
export function dialMetrics(families: Families, role: Role, keptAfter = Infinity, attempts?: Attempts): Subscriptions {
  // A series appears with its first dial: most phases have only one or two outcomes.
  const latencies = families.histograms(
    'dial_latency_seconds',
    'How long dials took, by outcome (established, failed, abandoned by the caller; attempts also overtaken by another) and phase: total, park (waiting for a session), attempt (each one), hub and agent (each including everything behind it), dns and connect (at the agent).',
    DIAL_BUCKETS,
    ['phase', 'outcome'],
  );
  const seen: Partial<Record<`${Phase} ${Outcome}`, Durations>> = {};
  const observe = (phase: Phase, outcome: Outcome, ms?: number, traceparent?: string, kept?: boolean) => {
    if (ms === undefined) return;
    const series = `${phase} ${outcome}` as const;
    seen[series] ??= latencies.of({ phase, outcome });
    seen[series].observe(ms / 1000, traceparent, kept);
  };
  const errors = families.counters(
    'dial_errors_total',
    'Dials that failed to become a tunnel, by error name (RFC 9209).',
    ['error'],
  );
  return {
    'dial:end'(by, { trial, traceparent, log }, outcome) {
      if (by !== role || trial) return;
      const ended = outcomeOf(outcome);
      const { error, ms, timing } = outcome;
      if (error) errors.of({ error: error.code }).inc();
      const kept = ms > keptAfter || (error !== undefined && keptAfter < Infinity);
      observe('total', ended, ms, traceparent, kept);
      if (timing) {
        // A part's own time is already observed as `total`.
        if (role === 'gateway') observe('hub', ended, timing.hubMs);
        if (role !== 'agent') observe('agent', ended, timing.agentMs);
        observe('dns', ended, timing.dnsMs);
        observe('connect', ended, timing.connectMs);
      }
      if (!log) return;
      if (log.parkedMs > 0) observe('park', ended, log.parkedMs);
      for (const attempt of log.attempts) {
        const end = endOf(attempt, ended);
        attempts?.of({ kind: attempt.kind, outcome: end }).inc();
        observe('attempt', end, attempt.ms, traceparent);
      }
    },
  };
}

type Attempts = Series<'kind' | 'outcome', Count>;

/** The attempts of a gateway's dials, which `dialMetrics` counts. */
export function attemptCounts(families: Families): Attempts {
  const attempts = families.counters(
    'dial_attempts_total',
    'Attempts to dial, by kind (first through a session, retry after a failed one, hedge alongside a slow one, or direct by the gateway itself) and outcome.',
    ['kind', 'outcome'],
  );
  for (const kind of KINDS) for (const outcome of OUTCOMES) attempts.of({ kind, outcome });
  return attempts;
}

/** Counts a gateway's parked dials. */
export function parkedMetrics(families: Families): Subscriptions {
  const parked = families.gauge('dials_parked', 'Dials that wait for a session.');
  const parks = families.counter('dial_parks_total', 'How often dials were parked to wait for a session.');
  return {
    'dial:park'({ trial }) {
      parked.inc();
      if (!trial) parks.inc();
    },
    'dial:unpark': () => parked.dec(),
  };
}

function outcomeOf({ error, failure }: DialOutcome): Outcome {
  if (!error) return 'established';
  return failure === 'abandoned' ? 'abandoned' : 'failed';
}

/** Returns how an attempt ended. If it still ran when its dial was abandoned, it was abandoned too. */
function endOf({ outcome }: AttemptRecord, dial: Outcome): Outcome {
  if (outcome === 'running') return dial;
  return outcome === 'overtaken' && dial === 'abandoned' ? 'abandoned' : outcome;
}
