import { formatFor } from '../plane/negotiation.ts';
import { processFamilies } from '../process/process.ts';
import { Durations } from './durations.ts';
import type { Family, FamilyType, Sample } from './exposition.ts';
import { Count, type Labels, Series } from './series.ts';

/** A program's page of metrics. */
export interface Metrics {
  /**
   * Returns the current page.
   * @param accept the scraper's `Accept` header. It gets OpenMetrics if it asks for that, otherwise text format 0.0.4
   * @param tenant only the lines with this tenant, of families that have them. Unset: the whole page
   */
  render(accept?: string, tenant?: string): Promise<{ contentType: string; body: string }>;
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

/** Values by their labels. */
export type Lines<L extends string> = Iterable<readonly [labels: Labels<L>, value: number]>;

/** A family on a page, and the function that reads its samples. */
interface Entry {
  readonly declared: Declared;
  readonly read: () => readonly Sample[];
}

/**
 * Metric families under one prefix. A family without labels is on the page from the start, at 0. A family with labels has a line for
 * each set of labels that was used.
 */
export class Families {
  readonly #entries: Entry[];
  readonly #prefix: string;
  #process: (() => Promise<Family[]>) | undefined;

  constructor(prefix: string, entries: Entry[] = []) {
    this.#entries = entries;
    this.#prefix = prefix;
  }

  get declared(): readonly Declared[] {
    return this.#entries.map(({ declared }) => declared);
  }

  /** Returns a view of the same page, for families with another prefix. */
  under(prefix: string): Families {
    return new Families(prefix, this.#entries);
  }

  counter(name: string, help: string): Count {
    return this.counters(name, help, []).of({});
  }

  counters<L extends string>(name: string, help: string, labels: readonly L[]): Series<L, Count> {
    return this.#counted('counter', name, help, labels);
  }

  gauge(name: string, help: string): Count {
    return this.gauges(name, help, []).of({});
  }

  gauges<L extends string>(name: string, help: string, labels: readonly L[]): Series<L, Count> {
    return this.#counted('gauge', name, help, labels);
  }

  /** @param buckets upper bounds in seconds, ascending, without infinity */
  histogram(name: string, help: string, buckets: readonly number[]): Durations {
    return this.histograms(name, help, buckets, []).of({});
  }

  histograms<L extends string>(
    name: string,
    help: string,
    buckets: readonly number[],
    labels: readonly L[],
  ): Series<L, Durations> {
    const series = new Series(labels, () => new Durations(buckets));
    const declared = { ...this.#declare('histogram', name, help, labels), buckets };
    const read = () => [...series].flatMap(([labels, durations]) => [...durations.samples(declared.name, labels)]);
    this.#entries.push({ declared, read });
    return series;
  }

  /** Adds a gauge that is computed for each page. It is absent while `measure` returns undefined. */
  measured(name: string, help: string, measure: () => number | undefined): void {
    this.tallied('gauge', name, help, [], () => {
      const value = measure();
      return value === undefined ? [] : [[{}, value]];
    });
  }

  /** Adds a gauge or counter whose lines are computed for each page. */
  tallied<L extends string>(
    type: 'counter' | 'gauge',
    name: string,
    help: string,
    labels: readonly L[],
    tally: () => Lines<L>,
  ): void {
    const declared = this.#declare(type, name, help, labels);
    const read = () => Array.from(tally(), ([labels, value]) => ({ name: declared.name, labels, value }));
    this.#entries.push({ declared, read });
  }

  /** Adds `process_*` and `nodejs_*`. Call it only once per process. */
  addProcess(): void {
    this.#process = processFamilies();
  }

  async render(accept?: string, tenant?: string): Promise<{ contentType: string; body: string }> {
    const { contentType, text } = formatFor(accept);
    if (tenant !== undefined) return { contentType, body: text(this.#of(tenant)) };
    return { contentType, body: text(await this.collect()) };
  }

  async collect(): Promise<readonly Family[]> {
    const process = (await this.#process?.()) ?? [];
    const ours = this.#entries.map(({ declared, read }) => ({ ...declared, samples: read() }));
    return [...ours, ...process];
  }

  #of(tenant: string): Family[] {
    return this.#entries
      .filter(({ declared }) => declared.labels.includes('tenant'))
      .map(({ declared, read }) => ({ ...declared, samples: read().filter(({ labels }) => labels.tenant === tenant) }))
      .filter(({ samples }) => samples.length > 0);
  }

  #counted<L extends string>(
    type: 'counter' | 'gauge',
    name: string,
    help: string,
    labels: readonly L[],
  ): Series<L, Count> {
    const series = new Series(labels, () => new Count());
    this.tallied(type, name, help, labels, () => Array.from(series, ([labels, { value }]) => [labels, value]));
    return series;
  }

  #declare(type: FamilyType, name: string, help: string, labels: readonly string[]): Declared {
    const full = this.#prefix + name;
    if (this.declared.some((other) => other.name === full)) throw new Error(`a family ${full} already exists`);
    return { type, name: full, help, labels };
  }
}
