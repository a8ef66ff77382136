import type { Registry } from 'prom-client';
import type { Family, FamilyType, Sample } from '../exposition/exposition.ts';

/**
 * Families with this prefix are left out: `isthmus_event_loop_delay_seconds` reports the same from the start. Each page resets these
 * families, so they show NaN and 9e9 if nothing was measured since, which always happens on the first page.
 */
const EVENT_LOOP = 'nodejs_eventloop_lag_';

/**
 * Returns a function that reads the current `process_*` (with the names of Go's client) and `nodejs_*` families. Call it only once per
 * process, because prom-client's observers never stop.
 *
 * prom-client is loaded for the first page, since it takes 2 MB and a tenth of a program's start. Garbage collections are counted from
 * then on, CPU time from the start of the process. If it cannot be loaded or read, the page lacks these families, and the next page
 * tries again. (If Node 20 runs out of file descriptors while it loads a module, it keeps that error for good; newer versions try
 * again.)
 */
export function processFamilies(open = openRegistry): () => Promise<Family[]> {
  let opened: Promise<Registry> | undefined;
  const measured = async () => {
    opened ??= open().catch((error) => {
      opened = undefined;
      throw error;
    });
    const families = await (await opened).getMetricsAsJSON();
    return families.map(({ name, help, type, values }) => {
      // At run time `type` is the word that the page shows, whatever the type declarations say.
      return { name, help, type: String(type) as FamilyType, samples: samplesOf(name, values) };
    });
  };
  return () => measured().catch(() => []);
}

async function openRegistry(): Promise<Registry> {
  const { collectDefaultMetrics, Counter, Registry } = await import('prom-client');
  const registry = new Registry();
  const { user, system } = process.cpuUsage();
  collectDefaultMetrics({ register: registry });
  for (const { name } of registry.getMetricsAsArray())
    if (name.startsWith(EVENT_LOOP)) registry.removeSingleMetric(name);
  const before = { user_seconds: user, system_seconds: system, seconds: user + system };
  for (const [kind, microseconds] of Object.entries(before)) {
    const counter = registry.getSingleMetric(`process_cpu_${kind}_total`);
    if (counter instanceof Counter) counter.inc(microseconds / 1e6);
  }
  return registry;
}

/** A value as prom-client reports it. In fact all labels have a value, but its types do not say so. */
interface Measured {
  readonly value: number;
  readonly labels: Partial<Record<string, string | number>>;
  readonly metricName?: string;
}

function samplesOf(family: string, values: readonly Measured[]): Sample[] {
  return values.map(({ metricName: name = family, labels, value }) => {
    return { name, labels: labels as Sample['labels'], value };
  });
}
