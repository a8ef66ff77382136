import * as v from 'valibot';
import { ADMISSION } from './defaults.ts';
import type { FileProblems } from './tenants.ts';

/** The file in a tenants' directory in which isthmus tenants sync says what it has done. */
export const SYNC_REPORT = '.sync.json';

/** Whom a fault is of that no object has. */
export const SYNC_ITSELF = 'isthmus tenants sync';

const report = v.object({
  /** When it was written. */
  at: v.pipe(v.string(), v.isoTimestamp()),
  plane: v.string(),
  /** How many tenants' files there are. */
  tenants: v.number(),
  /** Objects whose newest state is not in force. */
  faults: v.array(
    v.object({
      /** `Cluster acme/prod`, or `SYNC_ITSELF` */
      object: v.string(),
      fault: v.string(),
      /** The tenant that an earlier state of it keeps in force. */
      kept: v.exactOptional(v.string()),
    }),
  ),
});

export type SyncReport = v.InferOutput<typeof report>;

/** What a report says of objects that are not in force, and whether the sync that wrote it still runs, at a time in milliseconds since the epoch. */
export type ReadReport = (now: number) => FileProblems[];

export function readReport(text: string): ReadReport {
  const place = { line: 0, column: 0, at: '' };
  const problem = (message: string): FileProblems[] => [{ path: SYNC_ITSELF, problems: [{ ...place, message }] }];
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const why = (error as Error).message;
    return () => problem(`it has written what is no report: ${why}`);
  }
  const { success, output } = v.safeParse(report, value);
  if (!success) return () => problem('it has written a report of another version');
  const faults = output.faults.map(({ object, fault, kept }) => ({
    ...{ path: object, problems: [{ ...place, message: fault }] },
    ...(kept !== undefined && { kept }),
  }));
  const silent = `it has not written since ${output.at}: tenants stay as they were`;
  return (now) => (now - Date.parse(output.at) < ADMISSION.syncSilentMs ? faults : [...problem(silent), ...faults]);
}
