import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import type { Dial } from './dial.ts';
import { DialError } from './errors.ts';

/**
 * File descriptors that dials may not use: those who are refused for want of one need some to hear of it, and so do health
 * checks, links that come back, certificates and name resolution.
 */
const RESERVE = 64;

/** Of a small limit the reserve is this part. */
const RESERVED_PART = 8;

/** Of the reserve, what stays when even an answer costs too much: connections are closed as they come. */
const LAST_PART = 4;

/**
 * How old a count may be, and how old one that says that dials are to be refused: in milliseconds, and at least so many times what
 * it took. A thousand open ones take 1.5 ms to count, 20,000 take 25.
 */
const EVERY = { ms: 1000, times: 200 };
const EVERY_SCARCE = { ms: 100, times: 20 };

/** How often listeners are compared with what can be opened, in milliseconds. */
const LOOK_EVERY = 250;

/** What the system says of this process; undefined where it says nothing. */
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
}

/** How many file descriptors this process has left, asked of the system now and then and reckoned in between. */
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

  /** One was opened: taken to stay open until the next count. */
  opened(): void {
    this.#left--;
  }

  /** What is left is the reserve. */
  get scarce(): boolean {
    return this.#count() < this.#reserve;
  }

  /** What is left is too little even for an answer to each who is refused. */
  get spent(): boolean {
    return this.#count() < this.#reserve / LAST_PART;
  }

  /** Whether not even one can be opened now. */
  get exhausted(): boolean {
    return !this.#source.canOpen();
  }

  /**
   * Closes a listener while not one descriptor can be opened, so that whoever comes is refused at once. Node does not tell when
   * it cannot accept: it looks at the queue again and again with a whole processor, and who waits there waits for good.
   * @returns ends it
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
      if (exhausted && listener.listening) listener.close();
      else if (!exhausted && !listener.listening) listener.open();
    }
  }

  #count(): number {
    const now = this.#source.now();
    const { ms, times } = this.#left < this.#reserve ? EVERY_SCARCE : EVERY;
    if (now - this.#countedAt < Math.max(ms, times * this.#countTook)) return this.#left;
    const { open, limit } = this.#source.count() ?? { open: 0, limit: Number.POSITIVE_INFINITY };
    this.#countedAt = this.#source.now();
    this.#countTook = this.#countedAt - now;
    this.#left = limit - open;
    this.#reserve = Math.min(RESERVE, limit / RESERVED_PART);
    return this.#left;
  }
}

/** Of Linux, from /proc, which has no cheaper way to say it. Elsewhere nothing is known of the limit. */
const system: DescriptorSource = {
  count() {
    try {
      // The directory's own is one of them.
      const open = readdirSync('/proc/self/fd').length - 1;
      const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
      return { open, limit: soft === undefined ? Number.POSITIVE_INFINITY : Number(soft) };
    } catch (error) {
      return noneLeft(error) ? { open: RESERVE, limit: RESERVE } : undefined;
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

/** This process's. */
export const descriptors = new Descriptors();

/** Refuses dials while descriptors are scarce: each would take one of the last, here or for its caller's answer. */
export function sparing(dial: Dial, left: Descriptors = descriptors): Dial {
  return (request) => (left.scarce ? Promise.reject(tooManyOpen()) : dial(request));
}

/** Nothing of the destination was reached, and another agent or gateway may have descriptors. */
function tooManyOpen(): DialError {
  const text = 'too many open files: the process needs a higher limit, or fewer tunnels';
  return new DialError('connection_limit_reached', text, { retryable: true, retryAfter: 0 });
}
