/** Above this size, expired entries are removed. */
const PRUNE_AT = 1000;

/** How long a silent hub or session is avoided before a dial tries it again, in milliseconds. */
const AVOIDED_FOR = 1000;

/**
 * Hubs and sessions that did not acknowledge a dial in time. Dials avoid them while there is an alternative, until they answer or
 * AVOIDED_FOR has passed: long before PING finds them dead.
 */
export class Suspects {
  readonly #until = new Map<string, number>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#until.size;
  }

  accuse(...ids: string[]): void {
    const until = this.#now() + AVOIDED_FOR;
    for (const id of ids) this.#until.set(id, until);
    // `has` is never called for an id that does not come back, so remove expired ids here.
    if (this.#until.size > PRUNE_AT) for (const id of [...this.#until.keys()]) this.has(id);
  }

  clear(...ids: string[]): void {
    if (this.#until.size > 0) for (const id of ids) this.#until.delete(id);
  }

  has(id: string): boolean {
    const until = this.#until.get(id);
    if (until === undefined) return false;
    if (until > this.#now()) return true;
    this.#until.delete(id);
    return false;
  }
}
