import { SYNC_ITSELF, SYNC_REPORT, type SyncReport } from '@isthmus/admission';
import { countIn } from '@isthmus/runtime';
import type { Metrics } from '@isthmus/service';
import { SYNC } from './defaults.ts';
import type { Directory } from './directory.ts';
import type { Sync, Verdict } from './sync.ts';

/** What the sync tells the members that read its directory: that it runs, and what of its objects is not in force. */
export class Report {
  readonly #directory: Directory;
  readonly #plane: string;
  #last = '';
  #at = Number.NEGATIVE_INFINITY;

  constructor(directory: Directory, plane: string) {
    this.#directory = directory;
    this.#plane = plane;
  }

  /**
   * Writes it if it says something else, or if it is old.
   * @param unknown why not all objects are known
   * @param now of a steady clock
   */
  write(verdicts: Iterable<Verdict>, unknown: Iterable<string>, tenants: number, now: number): void {
    const own = [...unknown].map((fault) => ({ object: SYNC_ITSELF, fault }));
    const refused = [...verdicts].filter(({ fault }) => fault !== undefined);
    const ofObjects = inTurns(refused).flatMap(({ source: { kind, namespace, name }, fault, kept, tenant }) =>
      fault === undefined ? [] : { object: `${kind} ${namespace}/${name}`, fault, ...(kept && { kept: tenant }) },
    );
    const faults = [...own, ...ofObjects.slice(0, SYNC.reportFaults)];
    if (ofObjects.length > SYNC.reportFaults)
      faults.push({
        object: SYNC_ITSELF,
        fault: `${ofObjects.length - SYNC.reportFaults} more objects are not in force`,
      });
    const said: Omit<SyncReport, 'at'> = { plane: this.#plane, tenants, faults };
    const text = JSON.stringify(said);
    if (text === this.#last && now - this.#at < SYNC.reportMs) return;
    this.#directory.put(SYNC_REPORT, JSON.stringify({ at: new Date().toISOString(), ...said } satisfies SyncReport));
    this.#last = text;
    this.#at = now;
  }
}

/** Those of each namespace in turns, so that one with many hides no other's. */
function inTurns(verdicts: readonly Verdict[]): Verdict[] {
  const before = new Map<string, number>();
  const ranked = verdicts.map((verdict) => ({ verdict, rank: countIn(before, verdict.source.namespace, 1) }));
  return ranked.sort((a, b) => a.rank - b.rank).map(({ verdict }) => verdict);
}

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
