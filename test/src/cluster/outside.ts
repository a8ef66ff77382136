import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, until } from '../harness/index.ts';
import { BIN, KEPT } from './settings.ts';

const GROUPS = '/sys/fs/cgroup';
/** Whether the machine has control groups of version 2: one hierarchy, in which a group has the controllers that those above it pass on. */
const UNIFIED = existsSync(join(GROUPS, 'cgroup.controllers'));
/** What a kubelet wants to find there. */
const CONTROLLERS = ['cpu', 'cpuset', 'hugetlb', 'memory', 'pids'];
const NAME = 'isthmus-cluster-';
/** Where the logs of a run that failed are left. */
export const LOGS = join(ROOT, 'dist', 'cluster');

/**
 * A machine of its own for a program: namespaces for mounts, network, processes, host name and IPC, control groups, and a directory for all
 * that it writes. When the program ends, or this process does (SIGKILL too), the kernel ends everything in there.
 */
export class Machine implements AsyncDisposable {
  /** Also the name of its control groups. */
  readonly name = `${NAME}${process.pid}`;
  readonly directory = join(KEPT, this.name);

  constructor() {
    removeAbandoned();
    mkdirSync(this.directory, { recursive: true });
    makeGroups(this.name);
  }

  /** Resolves with the program's exit status. Ends it when the signal aborts. */
  async run(program: readonly string[], signal: AbortSignal): Promise<number> {
    signal.throwIfAborted();
    const namespaces = ['--mount', '--net', '--pid', '--uts', '--ipc', '--fork', '--kill-child', '--mount-proc'];
    const args = ['--pdeathsig', 'KILL', 'unshare', ...namespaces, join(BIN, 'init'), ...program];
    // Detached, so that Ctrl-C reaches only this process, which ends the other at once.
    const child = spawn('setpriv', args, { detached: true, stdio: ['ignore', 'inherit', 'inherit'] });
    const end = () => void child.kill('SIGKILL');
    signal.addEventListener('abort', end);
    const [code] = (await once(child, 'exit')) as [number | null];
    signal.removeEventListener('abort', end);
    if (code !== 0 && !signal.aborted) keepLogs(this.directory);
    return code ?? 1;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await until(() => removeGroups(this.name), 'the end of the control groups');
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Returns the directories of a control group: of version 1, it has one for each controller. */
export function directoriesOf(group: string): string[] {
  const hierarchies = UNIFIED ? [''] : readdirSync(GROUPS);
  return hierarchies.map((hierarchy) => join(GROUPS, hierarchy, group));
}

/** The node's processes are in `system`, its pods beside it. Pods of a worker have a group of their own. */
function makeGroups(name: string): void {
  for (const group of [name, `${name}/system`, `${name}/worker`]) {
    for (const path of directoriesOf(group)) mkdirSync(path, { recursive: true });
    // A new group of version 1 has no processors and no memory until it is given some.
    for (const file of UNIFIED ? [] : ['cpuset.cpus', 'cpuset.mems'])
      writeFileSync(join(GROUPS, 'cpuset', group, file), readFileSync(join(GROUPS, 'cpuset', file)));
  }
  for (const group of UNIFIED ? [GROUPS, join(GROUPS, name)] : []) {
    const there = readFileSync(join(group, 'cgroup.controllers'), 'utf8').trim().split(' ');
    const wanted = CONTROLLERS.filter((controller) => there.includes(controller)).map((controller) => `+${controller}`);
    writeFileSync(join(group, 'cgroup.subtree_control'), wanted.join(' '));
  }
}

/** @returns whether they are gone: a group lasts as long as its processes, which die a moment after their namespace */
function removeGroups(name: string): boolean {
  const groups = directoriesOf(name);
  for (const group of groups) removeGroup(group);
  return !groups.some((group) => existsSync(group));
}

function removeGroup(group: string): void {
  if (!existsSync(group)) return;
  for (const entry of readdirSync(group, { withFileTypes: true }))
    if (entry.isDirectory()) removeGroup(join(group, entry.name));
  try {
    rmdirSync(group);
  } catch (error) {
    if (!['EBUSY', 'ENOENT'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}

/** Removes what runs left that were ended by SIGKILL. */
function removeAbandoned(): void {
  if (!existsSync(KEPT)) return;
  for (const name of readdirSync(KEPT)) {
    if (!name.startsWith(NAME) || existsSync(`/proc/${name.slice(NAME.length)}`)) continue;
    removeGroups(name);
    rmSync(join(KEPT, name), { recursive: true, force: true });
  }
}

/** The logs of the node's programs, and those of its pods. */
function keepLogs(directory: string): void {
  rmSync(LOGS, { recursive: true, force: true });
  for (const [from, to] of [
    ['logs', 'node'],
    ['changed/var/log/pods', 'pods'],
    ['worker/var/log/pods', 'worker-pods'],
  ] as const) {
    if (existsSync(join(directory, from))) cpSync(join(directory, from), join(LOGS, to), { recursive: true });
  }
  process.stdout.write(`The logs of the node are in ${LOGS}\n`);
}
