import { existsSync, mkdtempSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '@isthmus/runtime/testing';
import type { Place } from './member.ts';
import type { Scope } from './scope.ts';

/** A limit for the look whether there can be one, in bytes. */
const LEAST = 64 * 1024 * 1024;

/** How the two versions of Linux' control groups name the same things. Where both are mounted, the first one has the memory. */
const VERSIONS = [
  {
    root: '/sys/fs/cgroup/memory',
    limit: 'memory.limit_in_bytes',
    kills: 'memory.oom_control',
    own: /^total_rss (\d+)$/m,
  },
  { root: '/sys/fs/cgroup', limit: 'memory.max', kills: 'memory.events', own: /^anon (\d+)$/m },
] as const;

/** A control group that limits the memory of what runs in it, as a container's does. */
export interface ControlGroup extends Place {
  /** How many of its processes the kernel has killed for lack of memory. */
  readonly kills: number;
  /** What its processes have of their own just now, in bytes: what no file backs. */
  readonly ownBytes: number;
}

/** Why a test cannot limit memory here, or false if it can: for its `skip`. */
export function controlGroupMissing(): string | false {
  try {
    rmdirSync(newGroup(LEAST).dir);
    return false;
  } catch (error) {
    return `this machine lets nobody make a control group that limits memory: ${(error as Error).message}`;
  }
}

/** Makes a control group that goes with the scope. What the scope starts in it later ends before. @param limit in bytes */
export function controlGroup(scope: Scope, limit: number): ControlGroup {
  const { version, dir } = newGroup(limit);
  // A process that has ended may still count for a moment.
  scope.defer(() => until(() => removed(dir), { what: `an empty ${dir}` }));
  const read = (file: string, pattern: RegExp) => Number(pattern.exec(readFileSync(join(dir, file), 'latin1'))?.[1]);
  return {
    command: ['sh', '-c', 'echo $$ >"$0" && exec "$@"', join(dir, 'cgroup.procs')],
    host: '127.0.0.1',
    get kills() {
      return read(version.kills, /^oom_kill (\d+)$/m);
    },
    get ownBytes() {
      return read('memory.stat', version.own);
    },
  };
}

function newGroup(limit: number) {
  const version = VERSIONS.find(({ root }) => existsSync(join(root, 'cgroup.procs')));
  if (!version) throw new Error('no control groups are mounted');
  const dir = mkdtempSync(join(version.root, 'isthmus-'));
  try {
    // Without the controller, the file is not there, and none can be made.
    writeFileSync(join(dir, version.limit), String(limit), { flag: 'r+' });
  } catch (error) {
    rmdirSync(dir);
    throw error;
  }
  return { version, dir };
}

function removed(dir: string): boolean {
  try {
    rmdirSync(dir);
    return true;
  } catch {
    return !existsSync(dir);
  }
}
