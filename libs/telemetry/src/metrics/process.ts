import { collectDefaultMetrics, Registry } from 'prom-client';
import type { Family, FamilyType, Sample } from './exposition.ts';

/** `process_*` (names as Go's client has them) and `nodejs_*`, as they are now. Once a process: prom-client's observers never end. */
export function processFamilies(): () => Promise<Family[]> {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  return async () => {
    const families = await registry.getMetricsAsJSON();
    return families.map(({ name, help, type, values }) => {
      // As text, whatever the declarations say: `type` is the word that the page shows.
      return { name, help, type: String(type) as FamilyType, samples: samplesOf(name, values) };
    });
  };
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
