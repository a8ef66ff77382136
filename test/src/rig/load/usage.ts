import { cpuMs, peakBytes, residentBytes } from '../../harness/processes.ts';
import type { Groups } from './messages.ts';

/** Processor seconds so far, and resident megabytes, now and at most. */
export interface Used {
  readonly cpu: number;
  readonly mb: number;
  readonly peakMb: number;
}

/** Usage per group. */
export type Usage = ReadonlyMap<string, Used>;

export function usage(groups: Groups): Usage {
  const entries = Object.entries(groups).map(([name, pids]) => {
    const mb = (of: (pid: number) => number) => pids.reduce((sum, pid) => sum + of(pid), 0) / 1e6;
    return [name, { cpu: cpuMs(pids) / 1000, mb: mb(residentBytes), peakMb: mb(peakBytes) }] as const;
  });
  return new Map(entries);
}

/** Returns what each group used between two moments, per unit of what was done. */
export function cpuPer(before: Usage, after: Usage, suffix: string, units: number): Record<string, number> {
  return units > 0 ? differences(before, after, suffix, ({ cpu }) => cpu / units) : {};
}

export function differences(
  before: Usage,
  after: Usage,
  suffix: string,
  of: (used: Used) => number,
): Record<string, number> {
  const figures = [...after].map(([name, { cpu, mb, peakMb }]) => {
    const was = before.get(name) ?? { cpu: 0, mb: 0, peakMb: 0 };
    return [name + suffix, of({ cpu: cpu - was.cpu, mb: mb - was.mb, peakMb: peakMb - was.peakMb })] as const;
  });
  return Object.fromEntries(figures);
}
