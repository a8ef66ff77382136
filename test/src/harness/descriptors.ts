import { execFileSync, spawnSync } from 'node:child_process';
import type { Program } from './program.ts';

/** Why descriptors cannot be limited here; false if they can. For a test's `skip`. */
export function prlimitMissing(): string | false {
  return spawnSync('prlimit', ['--version']).status !== 0 && 'prlimit is not installed (Debian: util-linux)';
}

/** Refuses a running program file descriptors from this number on. What it has open stays open. */
export function limitDescriptors({ pid }: Pick<Program, 'pid'>, most: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${most}:`]);
}
