import type { Metrics } from '@isthmus/service';
import type { Sync } from './sync.ts';

/** Prometheus' text of what the sync has written. */
export function syncMetrics(sync: Sync): Metrics {
  return async () => {
    let faults = 0;
    for (const { fault } of sync.verdicts) if (fault !== undefined) faults++;
    const gauge = (name: string, help: string, value: number) =>
      `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${name} ${value}\n`;
    const body =
      gauge('isthmus_sync_tenants', "Tenants' files in the directory.", sync.written) +
      gauge('isthmus_sync_objects_refused', 'Objects whose newest state is not in force.', faults);
    return { body, contentType: 'text/plain; version=0.0.4; charset=utf-8' };
  };
}
