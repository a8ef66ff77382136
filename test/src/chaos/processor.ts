import { readdirSync, readFileSync } from 'node:fs';
import { statOf } from '../harness/index.ts';

/** The unit of /proc is a hundredth of a second. */
const TICKS_PER_SECOND = 100;

/** Processor time so far, in seconds: of this process with all processes below it, and of the whole machine. */
export interface ProcessorTime {
  readonly ours: number;
  readonly machine: number;
}

/** Returns undefined without /proc. Shows whether a figure is due to the plane or to other processes of the machine. */
export function processorTime(): ProcessorTime | undefined {
  try {
    const [line] = readFileSync('/proc/stat', 'utf8').split('\n', 1);
    const [, user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = numbers(line);
    return {
      ours: treeTicks(process.pid) / TICKS_PER_SECOND,
      machine: (user + nice + system + irq + softirq) / TICKS_PER_SECOND,
    };
  } catch {
    return undefined;
  }
}

/** Includes what ended children have used, which the kernel adds to their parent. */
function treeTicks(root: number): number {
  const parents = new Map<number, number>();
  const ticks = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid)) continue;
    const fields = fieldsOf(pid);
    if (!fields) continue;
    parents.set(pid, fields[1] ?? 0);
    ticks.set(pid, (fields[11] ?? 0) + (fields[12] ?? 0) + (fields[13] ?? 0) + (fields[14] ?? 0));
  }
  let sum = 0;
  for (const [pid, own] of ticks) if (isBelow(pid, root, parents)) sum += own;
  return sum;
}

function isBelow(pid: number, root: number, parents: ReadonlyMap<number, number>): boolean {
  for (let at: number | undefined = pid; at; at = parents.get(at)) if (at === root) return true;
  return false;
}

/** Undefined if the process has ended. */
function fieldsOf(pid: number): number[] | undefined {
  try {
    return statOf(pid).map(Number);
  } catch {
    return undefined;
  }
}

function numbers(line = ''): number[] {
  return line.trim().split(/\s+/).map(Number);
}
