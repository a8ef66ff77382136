import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** A program's page of metrics. */
export interface Metrics {
  /** The page in Prometheus' text format 0.0.4, as it is now. */
  render(): Promise<{ contentType: string; body: string }>;
  /** Stops listening to the events. */
  close(): void;
}

/** The bucket bounds that Go writes in another form than JavaScript: to Prometheus 2 a bound is a string. */
const GO_BOUNDS = [
  ['le="0.000001"', 'le="1e-06"'],
  ['le="0.00001"', 'le="1e-05"'],
] as const;

/**
 * Metric families under one prefix, in a registry of their own. A family without labels is on the page at 0 from the
 * start; one with labels has a line for each set of labels that was used.
 */
export class Families {
  readonly #registry: Registry;
  readonly #prefix: string;

  constructor(prefix: string, registry = new Registry()) {
    this.#registry = registry;
    this.#prefix = prefix;
  }

  /** The same page, another prefix. */
  under(prefix: string): Families {
    return new Families(prefix, this.#registry);
  }

  counter<L extends string = never>(name: string, help: string, labelNames: L[] = []): Counter<L> {
    return new Counter({ name: this.#prefix + name, help, labelNames, registers: [this.#registry] });
  }

  gauge<L extends string = never>(name: string, help: string, labelNames: L[] = []): Gauge<L> {
    return new Gauge({ name: this.#prefix + name, help, labelNames, registers: [this.#registry] });
  }

  /** A gauge that is worked out when the page is asked for. */
  measured(name: string, help: string, measure: () => number): void {
    const collect = function (this: Gauge): void {
      this.set(measure());
    };
    new Gauge({ name: this.#prefix + name, help, registers: [this.#registry], collect });
  }

  /** A gauge or counter with one label or more, whose lines are worked out when the page is asked for. */
  tallied<L extends string>(
    type: 'counter' | 'gauge',
    name: string,
    help: string,
    labelNames: L[],
    tally: () => Iterable<readonly [Record<L, string>, number]>,
  ): void {
    const Family = type === 'counter' ? Counter : Gauge;
    const collect = function (this: Counter<L> | Gauge<L>): void {
      this.reset();
      for (const [labels, value] of tally()) this.inc(labels, value);
    };
    new Family({ name: this.#prefix + name, help, labelNames, registers: [this.#registry], collect });
  }

  histogram<L extends string = never>(
    name: string,
    help: string,
    buckets: readonly number[],
    labelNames: L[] = [],
  ): Histogram<L> {
    return new Histogram({
      name: this.#prefix + name,
      help,
      buckets: [...buckets],
      labelNames,
      registers: [this.#registry],
    });
  }

  /** Adds `process_*` (names as Go's client has them) and `nodejs_*`. Once a process: their observers never end. */
  addProcess(): void {
    collectDefaultMetrics({ register: this.#registry });
  }

  async render(): Promise<{ contentType: string; body: string }> {
    let body = await this.#registry.metrics();
    for (const [ours, theirs] of GO_BOUNDS) body = body.replaceAll(ours, theirs);
    return { contentType: this.#registry.contentType, body };
  }
}
