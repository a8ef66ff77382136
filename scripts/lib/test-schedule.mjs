import { cpus } from 'node:os';

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

/** Returns a function that returns the share of the processors that was idle since its last call, from 0 to 1. */
export function idleShare() {
  const read = () => cpus().map(({ times }) => times);
  let before = read();
  return () => {
    const now = read();
    const passed = (name) => sumOf(now, name) - sumOf(before, name);
    const all = Object.keys(now[0] ?? {}).reduce((total, name) => total + passed(name), 0);
    const share = all > 0 ? passed('idle') / all : 0;
    before = now;
    return share;
  };
}

function sumOf(times, name) {
  return times.reduce((total, each) => total + each[name], 0);
}
