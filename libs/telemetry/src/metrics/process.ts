import type { Registry } from 'prom-client';
import type { Family, FamilyType, Sample } from './exposition.ts';

/**
 * Left out: `isthmus_event_loop_delay_seconds` tells it from the beginning, and these are set back by each page: NaN and 9e9 where
 * nothing was felt since, as on the first.
 */
const EVENT_LOOP = 'nodejs_eventloop_lag_';

/**
 * `process_*` (names as Go's client has them) and `nodejs_*`, as they are now. Once a process: prom-client's observers never end.
 *
 * It is loaded for the first page, as it takes 2 MB and a tenth of a program's start: collections of garbage are counted from
 * then on, processor time from the process' beginning. A page for which it cannot be loaded or read is without
 * these families, and the next one tries again. (Node 20 keeps the error of a module that it found and could not read, out of file
 * descriptors; newer ones try again as well.)
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
      // As text, whatever the declarations say: `type` is the word that the page shows.
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
