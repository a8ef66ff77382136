import { parseTraceparent } from '../../tracing/traceparent.ts';
import type { Exemplar, Sample } from './exposition.ts';

/** The latest observation in a bucket whose trace is kept. */
interface Traced {
  readonly traceparent: string;
  readonly seconds: number;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

/**
 * One series of a histogram. An observation costs one or two additions. With prom-client, each would build strings of bounds, hash
 * labels and check names (1 µs, and 2 µs with an exemplar).
 */
export class Durations {
  readonly #bounds: readonly number[];
  /** Observations in each bucket, not cumulative. The last one counts those above the last bound. */
  readonly #counts: number[];
  readonly #traced: (Traced | undefined)[];
  #sum = 0;

  /** @param bounds in seconds, ascending, without infinity */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.#counts = new Array(bounds.length + 1).fill(0);
    this.#traced = new Array(bounds.length + 1).fill(undefined);
  }

  /** @param kept whether the trace is kept even if its flags say that it is not sampled */
  observe(seconds: number, traceparent?: string, kept = false): void {
    let bucket = 0;
    while (seconds > (this.#bounds[bucket] ?? Number.POSITIVE_INFINITY)) bucket++;
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1;
    this.#sum += seconds;
    if (traceparent !== undefined && (kept || isSampled(traceparent))) {
      this.#traced[bucket] = { traceparent, seconds, at: Date.now() };
    }
  }

  *samples(name: string, labels: Sample['labels']): Iterable<Sample> {
    let count = 0;
    for (const [bucket, own] of this.#counts.entries()) {
      count += own;
      const le = this.#bounds[bucket] ?? Number.POSITIVE_INFINITY;
      const exemplar = exemplarOf(this.#traced[bucket]);
      yield { name: `${name}_bucket`, labels: { le, ...labels }, value: count, ...(exemplar && { exemplar }) };
    }
    yield { name: `${name}_sum`, labels, value: this.#sum };
    yield { name: `${name}_count`, labels, value: count };
  }
}

/** Reads the flags at the end of `00-TRACE-SPAN-FLAGS`. `exemplarOf` skips invalid traceparents when the page is rendered. */
function isSampled(traceparent: string): boolean {
  return (Number.parseInt(traceparent.slice(53, 55), 16) & 1) === 1;
}

function exemplarOf(traced: Traced | undefined): Exemplar | undefined {
  const trace_id = traced && parseTraceparent(traced.traceparent)?.traceId;
  return trace_id ? { labels: { trace_id }, value: traced.seconds, timestamp: traced.at / 1000 } : undefined;
}
