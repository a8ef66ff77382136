import timers from 'node:timers/promises';
import { getOrPut, Semaphore } from '@isthmus/runtime';
import type { PlaneEvents, TunnelInfo } from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';
import { parseTraceparent, type Subscriptions, subscribe } from '../events.ts';
import { type Bucket, type Exemplar, type Family, type FamilyType, formatFor, type Sample } from './exposition.ts';

/** A program whose page it is. */
export interface ObservedProgram {
  readonly events: PlaneEvents;
  /** Those that run, in each role of the program. */
  readonly tunnels: Iterable<TunnelInfo>;
}

interface Rendered {
  readonly contentType: string;
  readonly body: string | Buffer;
}

/** A program's page of metrics. */
export interface Metrics {
  /**
   * Returns the current page.
   * @param accept the scraper's `Accept` header. It gets protobuf or OpenMetrics if it asks for that, otherwise text format 0.0.4
   * @param tenant only the lines with this tenant, of families that have them. Unset: the whole page
   */
  render(accept?: string, tenant?: string): Promise<Rendered>;
  /** Returns every family of the current page. */
  collect(): Promise<readonly Family[]>;
  /** Every family that can be on the page, except those of the process itself. */
  readonly declared: readonly Declared[];
  /** Stops listening to the events. */
  close(): void;
}

/** A family without its samples. */
export interface Declared {
  readonly name: string;
  readonly type: FamilyType;
  readonly help: string;
  readonly labels: readonly string[];
  /** Upper bounds, for a histogram. */
  readonly buckets?: readonly number[];
}

/** The labels of a family, by its head: `name`, or `name{label,label}`, as docs/METRICS.md has it. */
type LabelsOf<Head extends string> = Head extends `${string}{${infer Names}}` ? Split<Names> : never;
type Split<Names extends string> = Names extends `${infer First},${infer More}` ? First | Split<More> : Names;

/** What a family counts: one value without labels, otherwise one for each set of them. */
type Counted<Head extends string, T> = [LabelsOf<Head>] extends [never] ? T : Series<LabelsOf<Head>, T>;

/** A family on a page, and the function that reads its samples. */
interface Entry {
  readonly declared: Declared;
  readonly read: () => readonly Sample[];
}

/** What all families of a page share. */
interface Shared {
  readonly entries: Entry[];
  readonly subscriptions: Subscriptions[];
  readonly ends: (() => void)[];
}

/**
 * Metric families under one prefix, each named by its head. A family without labels is on the page from the start, at 0. A family with
 * labels has a line for each set of labels that was used.
 */
export class Families {
  readonly #prefix: string;
  readonly #shared: Shared;
  #others: () => Promise<readonly Family[]> = async () => [];
  readonly #renders = new Renders();

  constructor(prefix: string, shared: Shared = { entries: [], subscriptions: [], ends: [] }) {
    this.#prefix = prefix;
    this.#shared = shared;
  }

  /** Returns a view of the same page, for families with another prefix. */
  under(prefix: string): Families {
    return new Families(prefix, this.#shared);
  }

  counter<Head extends string>(head: Head, help: string): Counted<Head, Count> {
    return this.#counted('counter', head, help);
  }

  gauge<Head extends string>(head: Head, help: string): Counted<Head, Count> {
    return this.#counted('gauge', head, help);
  }

  /** @param buckets upper bounds in seconds, ascending, without infinity */
  histogram<Head extends string>(head: Head, help: string, buckets: readonly number[]): Counted<Head, Durations> {
    const declared = { ...this.#declared('histogram', head, help), buckets };
    const series = new Series(declared.labels, () => new Durations(buckets));
    const read = () => Array.from(series, ([labels, durations]) => durations.sample(labels));
    this.#shared.entries.push({ declared, read });
    return counted(declared, series);
  }

  /** Adds a gauge that is computed for each page. It is absent while `measure` returns undefined. */
  measured(name: string, help: string, measure: () => number | undefined): void {
    this.tallied('gauge', name, help, () => {
      const value = measure();
      return value === undefined ? [] : [[{}, value]];
    });
  }

  /** Adds a gauge or counter whose lines are computed for each page. */
  tallied<Head extends string>(
    type: 'counter' | 'gauge',
    head: Head,
    help: string,
    tally: () => Iterable<readonly [labels: Labels<LabelsOf<Head>>, value: number]>,
  ): void {
    const read = () => Array.from(tally(), ([labels, value]) => ({ labels, value }));
    this.#shared.entries.push({ declared: this.#declared(type, head, help), read });
  }

  /** Listens to events while there is a page. */
  on(subscriptions: Subscriptions): void {
    this.#shared.subscriptions.push(subscriptions);
  }

  /** @param end stops what feeds the page, when it is closed */
  defer(end: () => void): void {
    this.#shared.ends.push(end);
  }

  /** Adds families that somebody else reads for each page. */
  append(read: () => Promise<readonly Family[]>): void {
    this.#others = read;
  }

  /** Returns the page, filled by events. */
  page(events: PlaneEvents): Metrics {
    const { entries, subscriptions, ends: deferred } = this.#shared;
    const ends = [...deferred, ...subscriptions.map((each) => subscribe(events, each))];
    return {
      declared: entries.map(({ declared }) => declared),
      collect: () => this.collect(),
      render: (accept, tenant) => this.render(accept, tenant),
      close() {
        for (const end of ends) end();
      },
    };
  }

  render(accept?: string, tenant?: string): Promise<Rendered> {
    const { contentType, render } = formatFor(accept);
    return this.#renders.take(JSON.stringify([contentType, tenant]), async () => {
      return { contentType, body: render(tenant === undefined ? await this.collect() : this.#of(tenant)) };
    });
  }

  async collect(): Promise<readonly Family[]> {
    const ours = this.#shared.entries.map(({ declared, read }) => ({ ...declared, samples: read() }));
    return [...ours, ...(await this.#others())];
  }

  #of(tenant: string): Family[] {
    return this.#shared.entries
      .filter(({ declared }) => declared.labels.includes('tenant'))
      .map(({ declared, read }) => ({ ...declared, samples: read().filter(({ labels }) => labels.tenant === tenant) }))
      .filter(({ samples }) => samples.length > 0);
  }

  #counted<Head extends string>(type: 'counter' | 'gauge', head: Head, help: string): Counted<Head, Count> {
    const declared = this.#declared(type, head, help);
    const series = new Series(declared.labels, (): Count => ({ value: 0 }));
    const read = () => Array.from(series, ([labels, { value }]) => ({ labels, value }));
    this.#shared.entries.push({ declared, read });
    return counted(declared, series);
  }

  #declared(type: FamilyType, head: string, help: string): Declared {
    const [own = '', ...labels] = head.split(/[{,}]/).filter(Boolean);
    const name = this.#prefix + own;
    if (this.#shared.entries.some(({ declared }) => declared.name === name))
      throw new Error(`a family ${name} already exists`);
    return { type, name, help, labels };
  }
}

function counted<Head extends string, T>({ labels }: Declared, series: Series<string, T>): Counted<Head, T> {
  return (labels.length > 0 ? series : series.of({})) as Counted<Head, T>;
}

/**
 * Renders pages one after the other. A page costs milliseconds, and everyone who reaches a health port may ask for it. So all who wait for
 * the same page get the same one, which begins after they asked, and once many were rendered in a row, pages take only a part of the time.
 */
class Renders {
  readonly #waiting = new Map<string, Promise<Rendered>>();
  readonly #turns = new Semaphore(1);
  /** When the next page may begin, in milliseconds of `performance.now()`. */
  #due = 0;

  /** @param page which one it is */
  take(page: string, render: () => Promise<Rendered>): Promise<Rendered> {
    return getOrPut(this.#waiting, page, () => this.#turns.take(() => this.#inTurn(page, render)));
  }

  async #inTurn(page: string, render: () => Promise<Rendered>): Promise<Rendered> {
    const early = this.#due - performance.now();
    // Later in any case, so that it waits where others find it.
    await (early > 0 && timers.setTimeout(early, undefined, { ref: false }));
    this.#waiting.delete(page);
    const began = performance.now();
    try {
      return await render();
    } finally {
      const now = performance.now();
      const due = Math.max(this.#due, now - TELEMETRY.pagesBurstMs) + (now - began) / TELEMETRY.pagesShare;
      this.#due = Math.min(due, now + TELEMETRY.pagesBurstMs);
    }
  }
}

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

  sample(labels: Sample['labels']): Sample {
    let count = 0;
    const buckets = this.#counts.map((own, bucket): Bucket => {
      count += own;
      const exemplar = exemplarOf(this.#traced[bucket]);
      return { le: this.#bounds[bucket] ?? Number.POSITIVE_INFINITY, count, ...(exemplar && { exemplar }) };
    });
    return { labels, value: this.#sum, buckets };
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

/** Label values by label name. */
type Labels<L extends string> = Readonly<Record<L, string | number>>;

/** The value of a gauge or counter for one set of labels, read for each page. */
export interface Count {
  value: number;
}

/** A family's values, one for each set of labels that was used, in the order of first use. */
export class Series<L extends string, T> {
  readonly #names: readonly L[];
  readonly #begin: () => T;
  readonly #by = new Map<string, readonly [labels: Labels<L>, one: T]>();

  constructor(names: readonly L[], begin: () => T) {
    this.#names = names;
    this.#begin = begin;
  }

  /** Returns the value for a set of labels, which begins with its first use. */
  of(labels: Labels<L>): T {
    let key = '';
    for (const name of this.#names) key += `${labels[name]}\0`;
    let found = this.#by.get(key);
    if (!found) {
      found = [labels, this.#begin()];
      this.#by.set(key, found);
    }
    return found[1];
  }

  [Symbol.iterator](): Iterator<readonly [labels: Labels<L>, one: T]> {
    return this.#by.values();
  }
}
