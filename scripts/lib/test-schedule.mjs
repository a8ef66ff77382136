import { readFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { seconds } from './command.mjs';

/** How often another process may start because processors are idle: one that starts keeps a processor busy for about this long. */
const SPARE_MS = 1000;
/** The share of all processors that must be idle for it, a quarter of one of two. A busy machine starts none, so tests are not late there because of others. */
const SPARE_SHARE = 0.12;
/** How many times as many may run while processors are idle: tests that wait by the clock. Each may start ten programs, of 60 MB each. */
const SPARE_TIMES = 3;
/** How many processes run for each processor, however busy it is. Most tests wait most of the time. */
const FOR_EACH_PROCESSOR = 2;

/** The longest time without a line of output. */
const PROGRESS_MS = 10_000;

/** Says when test processes may start: a few at once, and more while processors are idle. Prints what runs and how much is left. */
export class Schedule {
  #waiting = [];
  #running = new Map();
  #done = 0;
  #atOnce;
  #idle;
  #print;
  #timers = [];

  /**
   * @param atOnce how many run at the same time; up to three times as many while processors are idle
   * @param idle returns the share of the processors that was idle since its last call, from 0 to 1
   */
  constructor({ atOnce = FOR_EACH_PROCESSOR * availableParallelism(), idle = idleShare(), print = console.log } = {}) {
    this.#atOnce = atOnce;
    this.#idle = idle;
    this.#print = print;
  }

  /**
   * Resolves when a process may start, with a function to call when it has ended.
   * @param job `{ name, files, cost }`: how many test files it runs, and a guess at how long it takes. The longest goes first: a long job
   * that begins last keeps one processor busy while the others are idle
   */
  turn(job) {
    return new Promise((resolve) => {
      const shorter = this.#waiting.findIndex((other) => other.job.cost < job.cost);
      this.#waiting.splice(shorter < 0 ? this.#waiting.length : shorter, 0, { job, resolve });
      this.#fill();
    });
  }

  #fill() {
    while (this.#waiting.length > 0 && this.#running.size < this.#atOnce) this.#start();
    const isBusy = this.#running.size > 0;
    if (isBusy && this.#timers.length === 0) {
      this.#idle();
      this.#timers = [setInterval(() => this.#spare(), SPARE_MS), setInterval(() => this.#progress(), PROGRESS_MS)];
    } else if (!isBusy) {
      for (const timer of this.#timers.splice(0)) clearInterval(timer);
    }
  }

  #spare() {
    const isIdle = this.#idle() >= SPARE_SHARE;
    if (isIdle && this.#waiting.length > 0 && this.#running.size < SPARE_TIMES * this.#atOnce) this.#start();
  }

  #start() {
    const { job, resolve } = this.#waiting.shift();
    this.#running.set(job, performance.now());
    resolve(() => {
      if (this.#running.delete(job)) this.#done += job.files;
      this.#fill();
    });
  }

  #progress() {
    const running = [...this.#running].map(([{ name }, start]) => `${name} (${seconds(performance.now() - start)})`);
    const left = [...this.#running.keys(), ...this.#waiting.map(({ job }) => job)].reduce(
      (sum, { files }) => sum + files,
      0,
    );
    this.#print(`       ${this.#done} of ${this.#done + left} files done; running ${running.join(', ')}`);
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
