import { execFileSync, spawnSync } from 'node:child_process';
import type { Program } from './program.ts';

/** Why this machine cannot limit descriptors, or false if it can: for a test's `skip`. */
export function prlimitMissing(): string | false {
  return spawnSync('prlimit', ['--version']).status !== 0 && 'prlimit is not installed (Debian: util-linux)';
}

/** Limits a running program to file descriptors below this number. Open ones stay open. */
export function limitDescriptors({ pid }: Pick<Program, 'pid'>, most: number): void {
  execFileSync('prlimit', ['--pid', String(pid), `--nofile=${most}:`]);
}
