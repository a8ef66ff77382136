import { readFileSync } from 'node:fs';

/** Linux counts a process' time in hundredths of a second (USER_HZ). */
const TICKS_PER_SECOND = 100;
const PAGE = 4096;

/** How long a program may take for a collection, in milliseconds. Nothing reports when V8's threads have returned what it freed. */
const COLLECTION = 1500;

/** Processor time of processes so far, user and system, in milliseconds. */
export function cpuMs(pids: readonly number[]): number {
  return pids.reduce((total, pid) => total + ticks(pid), 0) * (1000 / TICKS_PER_SECOND);
}

/** proc_pid_stat(5): after the name in parentheses, utime and stime are the 12th and 13th field. */
function ticks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** Resident memory of a process, in bytes. */
export function residentBytes(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/statm`, 'latin1').split(' ')[1]) * PAGE;
}

/** Returns the resident memory of each of our programs after a garbage collection, in bytes. */
export async function settledBytes(pids: readonly number[]): Promise<number[]> {
  // Twice: the second collection frees what finalizers and the first one released.
  for (let round = 0; round < 2; round++) {
    for (const pid of pids) process.kill(pid, 'SIGUSR2');
    await new Promise((resolve) => setTimeout(resolve, COLLECTION));
  }
  return pids.map(residentBytes);
}
