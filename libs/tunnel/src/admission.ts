import type { Dial, DialRequest } from './dial.ts';
import { DialError } from './errors.ts';

/** Dials that may be pending at once in one process; more than this is a dead plane, not a busy one. */
const MAX_PENDING = 10_000;

/** The one place of a program where a dial is let in: what policy and quotas will decide is decided here. */
export class Admission {
  readonly dial: Dial = (request) => this.#admit(request);
  readonly #inner: Dial;
  readonly #idle: (() => void)[] = [];
  #pending = 0;
  #closed = false;

  constructor(dial: Dial) {
    this.#inner = dial;
  }

  /** Dials without an answer yet. */
  get pending(): number {
    return this.#pending;
  }

  /** Refuses new dials; resolves when those that are pending have their answer. */
  close(): Promise<void> {
    this.#closed = true;
    return this.#pending === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve));
  }

  get closed(): boolean {
    return this.#closed;
  }

  async #admit(request: DialRequest) {
    if (this.#closed) throw new DialError('destination_unavailable', 'proxy is shutting down', { retryable: true });
    if (this.#pending >= MAX_PENDING) {
      throw new DialError('connection_limit_reached', `${MAX_PENDING} dials are pending already`);
    }
    this.#pending++;
    try {
      return await this.#inner(request);
    } finally {
      if (--this.#pending === 0) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }
}
