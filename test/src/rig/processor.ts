import { readdirSync } from 'node:fs';
import { cpus } from 'node:os';
import { statOf } from '../harness/index.ts';

/** The unit of /proc is a hundredth of a second. */
const TICK_MS = 10;

/** Time of all processors so far, and of it what nobody used, in milliseconds. */
export function machineMs(): { readonly all: number; readonly idle: number } {
  const times = cpus().map((each) => each.times);
  const all = times.flatMap((each) => Object.values(each)).reduce((sum, each) => sum + each, 0);
  return { all, idle: times.reduce((sum, { idle }) => sum + idle, 0) };
}

/** Processor time so far, in milliseconds: of this process with all processes below it, and of the whole machine. */
export interface ProcessorTime {
  readonly ours: number;
  readonly machine: number;
}

/** Shows whether a figure is due to the plane or to other processes of the machine. */
export function processorTime(): ProcessorTime {
  const { all, idle } = machineMs();
  return { ours: treeMs(process.pid), machine: all - idle };
}

/** Includes what ended children have used, which the kernel adds to their parent. */
function treeMs(root: number): number {
  const parents = new Map<number, number>();
  const used = new Map<number, number>();
  for (const name of readdirSync('/proc').filter((each) => /^\d+$/.test(each))) {
    const fields = fieldsOf(Number(name));
    parents.set(Number(name), fields[1] ?? 0);
    used.set(Number(name), fields.slice(11, 15).reduce((sum, ticks) => sum + ticks, 0) * TICK_MS);
  }
  const isBelow = (pid: number): boolean => pid === root || (pid > 0 && isBelow(parents.get(pid) ?? 0));
  return [...used].reduce((sum, [pid, ms]) => (isBelow(pid) ? sum + ms : sum), 0);
}

/** None if the process has ended. */
function fieldsOf(pid: number): number[] {
  try {
    return statOf(pid).map(Number);
  } catch {
    return [];
  }
}
