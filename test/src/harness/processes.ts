import { type ChildProcess, execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { within } from '@isthmus/runtime/testing';

/** Linux counts a process' time in hundredths of a second (USER_HZ). */
const TICK_MS = 10;

/** Returns what follows the name in /proc/PID/stat (proc_pid_stat(5)): the state, the parent, ... The name may contain blanks. */
export function statOf(pid: number): string[] {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Processor time of processes so far, user and system, in milliseconds. */
export function cpuMs(pids: readonly number[]): number {
  const ticks = pids.flatMap((pid) => statOf(pid).slice(11, 13).map(Number));
  return ticks.reduce((total, each) => total + each, 0) * TICK_MS;
}

/** Resident memory of a process, in bytes. */
export function residentBytes(pid: number): number {
  return statusBytes(pid, /^VmRSS:\s+(\d+) kB$/m);
}

/** The most that a process has had resident, in bytes. */
export function peakBytes(pid: number): number {
  return statusBytes(pid, /^VmHWM:\s+(\d+) kB$/m);
}

function statusBytes(pid: number, line: RegExp): number {
  const [, kib] = line.exec(readFileSync(`/proc/${pid}/status`, 'latin1')) ?? [];
  return Number(kib) * 1024;
}

export function openDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

/** Why this machine cannot limit descriptors, or false if it can: for a test's `skip`. */
export function prlimitMissing(): string | false {
  return spawnSync('prlimit', ['--version']).status !== 0 && 'prlimit is not installed (Debian: util-linux)';
}

/** Limits a running process to file descriptors below this number. Open ones stay open. */
export function limitDescriptors({ pid }: { readonly pid: number }, most: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${most}:`]);
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** Ends a child at once, unless it has ended. */
export async function killChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await within(gone, `the end of process ${child.pid}`);
}
