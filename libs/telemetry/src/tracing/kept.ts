import type { DialOutcome, DialRequest } from '@isthmus/tunnel';
import type { Context, Span, SpanContext, SpanOptions } from '@opentelemetry/api';
import { put } from './attributes.ts';
import { sinceEpoch } from './clock.ts';
import { attemptValues, describeDial } from './describe.ts';
import { spanOptions } from './spans.ts';

/** A gateway's dial that has ended and was not sampled. */
export interface UnsampledDial {
  /** The ids under which logs and the next hops know it. */
  readonly span: SpanContext;
  readonly parent: Context;
  /** Milliseconds of `performance.now()`. */
  readonly start: number;
  readonly dial: DialRequest;
  readonly outcome: DialOutcome;
}

export type KeepDial = (dial: UnsampledDial) => void;

/** Starts a span with given ids, which are already in use, and exports it whatever the sampler says. */
export type StartAs = (ids: SpanContext, name: string, options: SpanOptions, parent: Context) => Span;

/**
 * Exports dials that were not sampled if they failed or were slow, since somebody will ask about them. Each becomes one span with
 * everything that the gateway knows and each attempt as an event, under the ids that the dial had from the start.
 * @param slowMs a dial that took longer than this, in milliseconds, is slow
 */
export function keepDials(startAs: StartAs, slowMs: number): KeepDial {
  return ({ span: ids, parent, start, dial, outcome }) => {
    if (!outcome.error && outcome.ms <= slowMs) return;
    const span = startAs(ids, 'gateway.dial', spanOptions('gateway.dial', start), parent);
    describeDial(span, 'gateway.dial', dial, outcome);
    put(span, 'isthmus.dial.kept', outcome.error ? 'failed' : 'slow');
    for (const [index, attempt] of (dial.log?.attempts ?? []).entries()) {
      const values = attemptValues(attempt, index + 1);
      const { ms, error } = attempt;
      if (ms !== undefined) values.push(['isthmus.attempt.ms', ms]);
      if (error) values.push(['error.type', error.code]);
      span.addEvent('gateway.attempt', Object.fromEntries(values), sinceEpoch(attempt.start));
    }
    span.end(sinceEpoch(start + outcome.ms));
  };
}
