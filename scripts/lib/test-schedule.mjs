import { readFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';

/** How often another process may start because processors are idle: one that starts keeps a processor busy for about this long. */
const SPARE_MS = 1000;
/** The share of all processors that must be idle for it. A busy machine starts none, so tests are not late there because of others. */
const SPARE_SHARE = 0.3;
/** How many times as many may run while processors are idle. Each may start ten programs, of 60 MB each. */
const SPARE_TIMES = 2;

/**
 * Runs each job, and takes them from the list. `run` may put jobs back into it.
 * @param atOnce how many run at the same time; up to twice as many while processors are idle
 * @param idle returns the share of the processors that was idle since its last call, from 0 to 1
 */
export async function runAll(waiting, run, { atOnce, idle }) {
  const running = new Set();
  const start = () => {
    const one = run(waiting.shift()).finally(() => running.delete(one));
    running.add(one);
  };
  idle();
  let tick;
  const interval = setInterval(() => tick?.(), SPARE_MS);
  try {
    while (waiting.length + running.size > 0) {
      while (waiting.length > 0 && running.size < atOnce) start();
      const second = new Promise((resolve) => {
        tick = () => resolve(idle() >= SPARE_SHARE);
      });
      const spare = await Promise.race([second, ...running]);
      if (spare === true && waiting.length > 0 && running.size < SPARE_TIMES * atOnce) start();
    }
  } finally {
    clearInterval(interval);
  }
}

/**
 * Returns a function that returns the share of the processors that was idle since its last call, from 0 to 1. It is 0 if this process may not
 * use all of them: the counts are of the whole machine.
 */
export function idleShare({ usable = usableProcessors(), read = () => cpus().map(({ times }) => times) } = {}) {
  let before = read();
  if (usable < before.length) return () => 0;
  return () => {
    const now = read();
    const passed = (name) => sumOf(now, name) - sumOf(before, name);
    const all = Object.keys(now[0] ?? {}).reduce((total, name) => total + passed(name), 0);
    const share = all > 0 ? passed('idle') / all : 0;
    before = now;
    return share;
  };
}

/**
 * How many processors this process may keep busy: those it may run on, and no more than the quota of its control group.
 * @param text returns the text of a file; throws if there is none
 */
export function usableProcessors(processors = availableParallelism(), text = (path) => readFileSync(path, 'utf8')) {
  // "max 100000" or "QUOTA PERIOD" (version 2); QUOTA, -1 for none (version 1). In a container, its own group is at this path.
  const [quota, period] = numbers('/sys/fs/cgroup/cpu.max', text) ?? [
    ...(numbers('/sys/fs/cgroup/cpu/cpu.cfs_quota_us', text) ?? []),
    ...(numbers('/sys/fs/cgroup/cpu/cpu.cfs_period_us', text) ?? []),
  ];
  return quota > 0 && period > 0 ? Math.min(processors, quota / period) : processors;
}

function numbers(path, text) {
  try {
    return text(path).trim().split(/\s+/).map(Number);
  } catch {
    return undefined;
  }
}

function sumOf(times, name) {
  return times.reduce((total, each) => total + each[name], 0);
}
