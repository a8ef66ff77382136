import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { Durations } from './durations.ts';
import type { Family, FamilyType, Sample } from './exposition.ts';
import { formatFor } from './negotiation.ts';

/** A program's page of metrics. */
export interface Metrics {
  /**
   * The page as it is now.
   * @param accept the scraper's `Accept` header: text format 0.0.4, or OpenMetrics where that is asked for
   */
  render(accept?: string): Promise<{ contentType: string; body: string }>;
  /** Every family that can be on the page, but for those of the process itself. */
  readonly declared: readonly Declared[];
  /** Stops listening to the events. */
  close(): void;
}

/** What there is to know of a family but its samples. */
export interface Declared {
  readonly name: string;
  readonly type: FamilyType;
  readonly help: string;
  readonly labels: readonly string[];
  /** Upper bounds, of a histogram. */
  readonly buckets?: readonly number[];
}

/** Values by their labels. */
export type Lines<L extends string> = Iterable<readonly [labels: Readonly<Record<L, string>>, value: number]>;

/** A family on a page, and what reads its samples. */
interface Entry {
  readonly declared: Declared;
  readonly read: () => Promise<readonly Sample[]> | readonly Sample[];
}

/** As prom-client gives what it counted. */
type Counted = () => Promise<{ readonly values: readonly CountedValue[] }>;
interface CountedValue {
  readonly value: number;
  readonly labels: Partial<Record<string, string | number>>;
  readonly metricName?: string;
}

/**
 * Metric families under one prefix. A family without labels is on the page at 0 from the start; one with labels has a line for each
 * set of labels that was used.
 */
export class Families {
  readonly #entries: Entry[];
  readonly #prefix: string;
  #process: Registry | undefined;

  constructor(prefix: string, entries: Entry[] = []) {
    this.#entries = entries;
    this.#prefix = prefix;
  }

  get declared(): readonly Declared[] {
    return this.#entries.map(({ declared }) => declared);
  }

  /** The same page, another prefix. */
  under(prefix: string): Families {
    return new Families(prefix, this.#entries);
  }

  counter<L extends string = never>(name: string, help: string, labelNames: L[] = []): Counter<L> {
    const declared = this.#declare('counter', name, help, labelNames);
    return this.#counting(declared, new Counter({ name: declared.name, help, labelNames, registers: [] }));
  }

  gauge<L extends string = never>(name: string, help: string, labelNames: L[] = []): Gauge<L> {
    const declared = this.#declare('gauge', name, help, labelNames);
    return this.#counting(declared, new Gauge({ name: declared.name, help, labelNames, registers: [] }));
  }

  histogram<L extends string = never>(
    name: string,
    help: string,
    bounds: readonly number[],
    labelNames: L[] = [],
  ): Histogram<L> {
    const buckets = [...bounds];
    const declared = { ...this.#declare('histogram', name, help, labelNames), buckets };
    return this.#counting(declared, new Histogram({ name: declared.name, help, buckets, labelNames, registers: [] }));
  }

  /** A gauge that is worked out when the page is asked for; it is not there while that gives undefined. */
  measured(name: string, help: string, measure: () => number | undefined): void {
    this.tallied('gauge', name, help, [], () => {
      const value = measure();
      return value === undefined ? [] : [[{}, value]];
    });
  }

  /** A gauge or counter whose lines are worked out when the page is asked for. */
  tallied<L extends string>(
    type: 'counter' | 'gauge',
    name: string,
    help: string,
    labels: L[],
    tally: () => Lines<L>,
  ): void {
    const declared = this.#declare(type, name, help, labels);
    const read = () => Array.from(tally(), ([labels, value]) => ({ name: declared.name, labels, value }));
    this.#entries.push({ declared, read });
  }

  /**
   * A histogram for what happens often, with exemplars in OpenMetrics.
   * @returns the series of a set of labels, to be kept by whoever observes
   */
  durations<L extends string>(
    name: string,
    help: string,
    buckets: readonly number[],
    labels: L[],
  ): (labels: Readonly<Record<L, string>>) => Durations {
    const series: (readonly [Readonly<Record<L, string>>, Durations])[] = [];
    const declared = { ...this.#declare('histogram', name, help, labels), buckets };
    const read = () => series.flatMap(([labels, durations]) => [...durations.samples(declared.name, labels)]);
    this.#entries.push({ declared, read });
    return (labels) => {
      const durations = new Durations(buckets);
      series.push([labels, durations]);
      return durations;
    };
  }

  /** Adds `process_*` (names as Go's client has them) and `nodejs_*`. Once a process: their observers never end. */
  addProcess(): void {
    this.#process = new Registry();
    collectDefaultMetrics({ register: this.#process });
  }

  async render(accept?: string): Promise<{ contentType: string; body: string }> {
    const { contentType, text } = formatFor(accept);
    const ours = this.#entries.map(async ({ declared, read }) => ({ ...declared, samples: await read() }));
    return { contentType, body: text([...(await Promise.all(ours)), ...(await this.#processFamilies())]) };
  }

  async #processFamilies(): Promise<Family[]> {
    const families = (await this.#process?.getMetricsAsJSON()) ?? [];
    return families.map(({ name, help, type, values }) => {
      // As text, whatever the declarations say: `type` is the word that the page shows.
      return { name, help, type: String(type) as FamilyType, samples: samplesOf(name, values) };
    });
  }

  #counting<C extends { get: Counted }>(declared: Declared, counter: C): C {
    this.#entries.push({ declared, read: async () => samplesOf(declared.name, (await counter.get()).values) });
    return counter;
  }

  #declare(type: FamilyType, name: string, help: string, labels: readonly string[]): Declared {
    const full = this.#prefix + name;
    if (this.declared.some((other) => other.name === full)) throw new Error(`there is a family ${full} already`);
    return { type, name: full, help, labels };
  }
}

function samplesOf(family: string, values: readonly CountedValue[]): Sample[] {
  return values.map(({ metricName: name = family, labels, value }) => ({ name, labels: defined(labels), value }));
}

/** All labels have a value; prom-client's types cannot know. */
function defined(labels: CountedValue['labels']): Sample['labels'] {
  return labels as Sample['labels'];
}
