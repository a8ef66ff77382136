import { randomFillSync } from 'node:crypto';
import { countIn, deleteFrom, getOrPut } from './collections.ts';
import { RUNTIME } from './defaults.ts';

// In Node both are getters, which each look at the time and each use of a buffer would call.
for (const name of ['performance', 'Buffer'] as const)
  Object.defineProperty(globalThis, name, { value: globalThis[name], writable: true, configurable: true });

/** Time and randomness, so that a test can control both. */
export interface Clock {
  /** In milliseconds. Only differences have a meaning. Users keep it without the clock. */
  readonly now: () => number;
  /** 0 or more, less than 1. */
  random(): number;
  /** Calls back once. Returns a function that cancels it. */
  after(ms: number, run: () => void): () => void;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  random: Math.random,
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** Random bytes at hand: to get a few of them takes as long as to get all these. */
const pool = Buffer.alloc(RUNTIME.randomBytes);
let used = pool.length;

/** Returns so many random bytes as hexadecimal digits. */
export function randomHex(bytes: number): string {
  if (used + bytes > pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  used += bytes;
  return pool.toString('hex', used - bytes, used);
}

/** Delays that grow from `first` to `cap` milliseconds. Each is random within its upper half, so that a herd does not return at once. */
export class Backoff {
  readonly #first: number;
  readonly #cap: number;
  readonly #random: () => number;
  #failures = 0;

  constructor(first: number, cap: number, random: () => number = Math.random) {
    this.#first = first;
    this.#cap = Math.max(first, cap);
    this.#random = random;
  }

  /** Milliseconds to wait before the next try. @param cap of this delay. Below it, the next ones go on from where they are */
  next(cap = this.#cap): number {
    const ceiling = this.#first * 2 ** this.#failures;
    if (ceiling < cap) this.#failures++;
    return Math.min(cap, ceiling) * (0.5 + this.#random() / 2);
  }

  reset(): void {
    this.#failures = 0;
  }
}

/** The longest time of a timer, in milliseconds. Timers overflow above it and fire immediately, so a longer limit counts as none. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/**
 * Waits for work for at most `ms`. Returns true if it finished in time. Rejects if the work rejects in time. Later results and errors
 * of the work are ignored.
 */
export async function within(work: Promise<unknown>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => {
    if (ms <= LONGEST_TIMER) timer = setTimeout(resolve, ms, false);
  });
  try {
    return await Promise.race([work.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Lets a few pieces of work run at once. The others wait in order. If they belong to several owners, the owners take turns. */
export class Semaphore {
  #free: number;
  readonly #atOnceOfOne: number;
  /** How many run, by whose they are. */
  readonly #running = new Map<string, number>();
  /** What waits, by owner. The next owner comes first. */
  readonly #waiting = new Map<string, Set<() => void>>();

  /** @param atOnceOfOne how many of one may run at once */
  constructor(atOnce: number, atOnceOfOne = atOnce) {
    this.#free = atOnce;
    this.#atOnceOfOne = atOnceOfOne;
  }

  /**
   * @param of whose it is
   * @param signal gives up a turn that has not begun. Work that has begun has to listen itself
   */
  async take<T>(work: () => Promise<T>, of = '', signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    if (!this.#enter(of)) await this.#turn(of, signal);
    try {
      signal?.throwIfAborted();
      return await work();
    } finally {
      countIn(this.#running, of, -1);
      this.#free++;
      this.#wake();
    }
  }

  #turn(of: string, signal: AbortSignal | undefined): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const gone = () => {
      if (deleteFrom(this.#waiting, of, resolve)) reject(signal?.reason);
    };
    getOrPut(this.#waiting, of, () => new Set<() => void>()).add(resolve);
    signal?.addEventListener('abort', gone);
    return promise.finally(() => signal?.removeEventListener('abort', gone));
  }

  #enter(of: string): boolean {
    if (this.#free === 0 || (this.#running.get(of) ?? 0) >= this.#atOnceOfOne) return false;
    this.#free--;
    countIn(this.#running, of, 1);
    return true;
  }

  #wake(): void {
    for (const [of, waiting] of this.#waiting) {
      const [next] = waiting;
      if (!next || !this.#enter(of)) continue;
      deleteFrom(this.#waiting, of, next);
      // Behind the others.
      if (this.#waiting.delete(of)) this.#waiting.set(of, waiting);
      next();
      return;
    }
  }
}

/** Wraps a callback so that what it throws or rejects with is reported. */
export type Guarded = <A extends readonly unknown[]>(act: (...args: A) => unknown) => (...args: A) => void;

/**
 * Guards listeners, timers and promises: nothing else catches what a defect of ours throws there, and it would end the process.
 * @param fault ends what the callbacks serve, and reports the defect
 */
export function guarding(fault: (error: Error) => void): Guarded {
  return (act) =>
    (...args) => {
      try {
        const done = act(...args);
        if (done instanceof Promise) done.catch(fault);
      } catch (error) {
        fault(error as Error);
      }
    };
}
