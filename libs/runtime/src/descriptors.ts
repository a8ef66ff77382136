import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { guarding } from './async.ts';

/**
 * File descriptors that dials may not use. Answers to refused callers need them, and so do health checks, links that reconnect,
 * certificates and name resolution.
 */
const RESERVED_DESCRIPTORS = 64;

/** If the limit is small, the reserve is the limit divided by this. */
const RESERVED_PART = 8;

/** Below the reserve divided by this, even an answer costs too much: connections are closed as they arrive. */
const LAST_PART = 4;

/**
 * How long a count stays valid: `ms` milliseconds, and at least `times` the time that counting took. COUNT_EVERY_SCARCE applies while
 * dials are refused. Counting 1,000 open descriptors takes 1.5 ms, 20,000 take 25.
 */
const COUNT_EVERY = { ms: 1000, times: 200 };
const COUNT_EVERY_SCARCE = { ms: 100, times: 20 };

/** How often guarded listeners are closed or opened to match what can be opened, in milliseconds. */
const LOOK_EVERY = 250;

/** What the system reports about this process; undefined if it reports nothing. */
export interface DescriptorSource {
  count(): { readonly open: number; readonly limit: number } | undefined;
  canOpen(): boolean;
  now(): number;
}

/** A listener that can be closed for a while. */
export interface Reopening {
  readonly listening: boolean;
  close(): void;
  open(): void;
  /** Called with what either threw. */
  failed(error: Error): void;
}

/** How many file descriptors this process has left: counted by the system now and then, estimated in between. */
export class Descriptors {
  readonly #source: DescriptorSource;
  readonly #listeners = new Set<Reopening>();
  #timer: NodeJS.Timeout | undefined;
  #left = Number.POSITIVE_INFINITY;
  #reserve = 0;
  #countedAt = Number.NEGATIVE_INFINITY;
  #countTook = 0;

  constructor(source: DescriptorSource = system) {
    this.#source = source;
  }

  /** Reports one opened descriptor. It counts as open until the next count. */
  opened(): void {
    this.#left--;
  }

  /** Whether only the reserve is left. */
  get scarce(): boolean {
    return this.#count() < this.#reserve;
  }

  /** Whether too little is left even to answer each refused caller. */
  get spent(): boolean {
    return this.#count() < this.#reserve / LAST_PART;
  }

  /** Whether no descriptor can be opened at the moment. */
  get exhausted(): boolean {
    return !this.#source.canOpen();
  }

  /**
   * Closes a listener while no descriptor can be opened, so that new callers are refused at once. Node does not report that it
   * cannot accept: it polls the queue with a whole processor, and callers in the queue wait forever.
   * @returns a function that ends the guard
   */
  guard(listener: Reopening): () => void {
    this.#listeners.add(listener);
    this.#timer ??= setInterval(() => this.#look(), LOOK_EVERY).unref();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  #look(): void {
    const { exhausted } = this;
    for (const listener of this.#listeners) {
      const match = () => {
        if (exhausted && listener.listening) listener.close();
        else if (!exhausted && !listener.listening) listener.open();
      };
      guarding((error) => listener.failed(error))(match)();
    }
  }

  #count(): number {
    const now = this.#source.now();
    const { ms, times } = this.#left < this.#reserve ? COUNT_EVERY_SCARCE : COUNT_EVERY;
    if (now - this.#countedAt < Math.max(ms, times * this.#countTook)) return this.#left;
    const { open, limit } = this.#source.count() ?? { open: 0, limit: Number.POSITIVE_INFINITY };
    this.#countedAt = this.#source.now();
    this.#countTook = this.#countedAt - now;
    this.#left = limit - open;
    this.#reserve = Math.min(RESERVED_DESCRIPTORS, limit / RESERVED_PART);
    return this.#left;
  }
}

/** Reads /proc on Linux, which offers no cheaper way. Elsewhere the limit is unknown. */
const system: DescriptorSource = {
  count() {
    try {
      // Reading the directory opens a descriptor of its own.
      const open = readdirSync('/proc/self/fd').length - 1;
      const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
      return { open, limit: soft === undefined ? Number.POSITIVE_INFINITY : Number(soft) };
    } catch (error) {
      return noneLeft(error) ? { open: RESERVED_DESCRIPTORS, limit: RESERVED_DESCRIPTORS } : undefined;
    }
  },
  canOpen() {
    try {
      closeSync(openSync('/dev/null', 'r'));
      return true;
    } catch (error) {
      return !noneLeft(error);
    }
  },
  now: () => performance.now(),
};

function noneLeft(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EMFILE' || code === 'ENFILE';
}

/** The descriptors of this process. */
export const descriptors = new Descriptors();
