import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import type { Groups } from './messages.ts';

/** What `perf` counts, in user space only: the kernel's part changes with the machine. */
const EVENT = 'instructions:u';

let counts: boolean | undefined;

/** Whether `perf` is here, and this kernel lets it count. Virtual machines often do not. */
function canCount(): boolean {
  counts ??= countOf(spawnSync('perf', statArgs('true'), { encoding: 'utf8' }).stderr ?? '') !== undefined;
  return counts;
}

function statArgs(...rest: readonly string[]): string[] {
  return ['stat', '-x', ',', '-e', EVENT, ...rest];
}

/** Counts the instructions of processes until the returned function is called, which gives them by group. */
export function countInstructions(groups: Groups): () => Promise<Record<string, number>> {
  if (!canCount()) return async () => ({});
  const running = Object.entries(groups).map(([name, pids]) => {
    const perf = spawn('perf', statArgs('-p', pids.join(',')), { stdio: ['ignore', 'ignore', 'pipe'] });
    return { name, perf, said: text(perf.stderr), ended: once(perf, 'exit') };
  });
  return async () => {
    for (const { perf } of running) perf.kill('SIGINT');
    const all = await Promise.all(
      running.map(async ({ name, said, ended }) => {
        await ended;
        return [name, countOf(await said)] as const;
      }),
    );
    return Object.fromEntries(all.filter((each): each is [string, number] => each[1] !== undefined));
  };
}

/** perf-stat(1), `-x`: the first field is the count, or says in brackets why there is none. */
export function countOf(lines: string): number | undefined {
  const [count = ''] =
    lines
      .split('\n')
      .find((line) => line.includes(`,${EVENT},`))
      ?.split(',') ?? [];
  return /^\d+$/.test(count) ? Number(count) : undefined;
}
