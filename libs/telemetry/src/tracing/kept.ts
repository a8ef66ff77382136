import type { DialOutcome, DialRequest } from '@isthmus/tunnel';
import type { Context, Span, SpanContext, SpanOptions } from '@opentelemetry/api';
import { put } from './attributes.ts';
import { sinceEpoch } from './clock.ts';
import { attemptValues, describeDial } from './describe.ts';
import { spanOptions } from './spans.ts';

/** A gateway's dial that is over and was not sampled. */
export interface UnsampledDial {
  /** What logs and the next hops have it by. */
  readonly span: SpanContext;
  readonly parent: Context;
  /** Milliseconds of `performance.now()`. */
  readonly start: number;
  readonly dial: DialRequest;
  readonly outcome: DialOutcome;
}

export type KeepDial = (dial: UnsampledDial) => void;

/** Starts a span that is exported whatever the sampler says, by ids that are given out already. */
export type StartAs = (ids: SpanContext, name: string, options: SpanOptions, parent: Context) => Span;

/**
 * Keeps what nobody asked to see and somebody will ask about: a dial that failed or took long, though it was not sampled. It
 * becomes one span with all that the gateway knows, each attempt as an event, under the ids that the dial had all along.
 * @param slowMs a dial that took longer is slow; in milliseconds
 */
export function keepDials(startAs: StartAs, slowMs: number): KeepDial {
  return ({ span: ids, parent, start, dial, outcome }) => {
    if (!outcome.error && outcome.ms <= slowMs) return;
    const span = startAs(ids, 'gateway.dial', spanOptions('gateway.dial', start), parent);
    describeDial(span, 'gateway.dial', dial, outcome);
    put(span, 'isthmus.dial.kept', outcome.error ? 'failed' : 'slow');
    for (const [index, attempt] of (dial.story?.attempts ?? []).entries()) {
      const values = attemptValues(attempt, index + 1);
      const { ms, error } = attempt;
      if (ms !== undefined) values.push(['isthmus.attempt.ms', ms]);
      if (error) values.push(['error.type', error.code]);
      span.addEvent('gateway.attempt', Object.fromEntries(values), sinceEpoch(attempt.start));
    }
    span.end(sinceEpoch(start + outcome.ms));
  };
}
