import type { Registry } from 'prom-client';
import type { Family, FamilyType, Sample } from './exposition.ts';

/**
 * `process_*` (names as Go's client has them) and `nodejs_*`, as they are now. Once a process: prom-client's observers never end.
 *
 * It is loaded for the first page, as it takes 2 MB and a tenth of a program's start: collections of garbage and the event
 * loop's lag are counted from then on, processor time from the process' beginning.
 */
export function processFamilies(): () => Promise<Family[]> {
  let opened: Promise<Registry> | undefined;
  return async () => {
    opened ??= open();
    const registry = await opened;
    const families = await registry.getMetricsAsJSON();
    return families.map(({ name, help, type, values }) => {
      // As text, whatever the declarations say: `type` is the word that the page shows.
      return { name, help, type: String(type) as FamilyType, samples: samplesOf(name, values) };
    });
  };
}

async function open(): Promise<Registry> {
  const { collectDefaultMetrics, Counter, Registry } = await import('prom-client');
  const registry = new Registry();
  const { user, system } = process.cpuUsage();
  collectDefaultMetrics({ register: registry });
  const before = { user_seconds: user, system_seconds: system, seconds: user + system };
  for (const [kind, microseconds] of Object.entries(before)) {
    const counter = registry.getSingleMetric(`process_cpu_${kind}_total`);
    if (counter instanceof Counter) counter.inc(microseconds / 1e6);
  }
  return registry;
}

/** As prom-client gives what it measured. All labels have a value; its types cannot know. */
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
