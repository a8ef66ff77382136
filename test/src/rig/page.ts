import { spawnSync } from 'node:child_process';
import { cpus } from 'node:os';
import { ROOT } from '../harness/runtime.ts';

/** When and where figures were measured. */
export interface Made {
  /** ISO 8601. */
  readonly at: string;
  readonly node: string;
  readonly cores: number;
  readonly processor: string;
  readonly commit: string;
}

export function madeHere(): Made {
  const all = cpus();
  return {
    at: new Date().toISOString(),
    node: process.versions.node,
    cores: all.length,
    processor: all[0]?.model.trim() ?? '',
    // None without git.
    commit: spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).stdout?.trim() ?? '',
  };
}

/** The line of a page that says how its figures were made. @param rest what else is to say of it */
export function madeWith(command: string, { at, commit, node, cores, processor }: Made, rest: string): string {
  return `\`${command}\`, ${at.slice(0, 10)}, commit ${commit}, Node ${node}, ${cores} cores (${processor})${rest}.`;
}
