import { type Clock, LONGEST_TIMER, systemClock } from '@isthmus/runtime';
import { TUNNEL } from './defaults.ts';

/** What is due at a time, and a link of a chain: a Set of those that come and go with every dial would leave garbage in the old generation. */
export interface Due {
  before: Due | undefined;
  behind: Due | undefined;
  /** In milliseconds of the clock. Its owner moves it later by an assignment, and earlier by that and `enter`. */
  due: number;
  /** Called when its time has come. It has then left. Must not throw. */
  remind(): void;
}

/** @returns false if it is in no chain */
function unlink(one: Due): boolean {
  const { before, behind } = one;
  if (!before || !behind) return false;
  before.behind = behind;
  behind.before = before;
  one.before = undefined;
  one.behind = undefined;
  return true;
}

/** A ring of records, and of itself. */
class Chain implements Due {
  before: Due = this;
  behind: Due = this;
  due = 0;

  get first(): Due | undefined {
    return this.behind === this ? undefined : this.behind;
  }

  add(one: Due): void {
    const last = this.before;
    one.before = last;
    one.behind = this;
    last.behind = one;
    this.before = one;
  }

  remind(): void {}
}

/**
 * Reminds of what is due. One timer serves all: a dial or a tunnel has one record here for whatever it waits for next, and most leave before. A
 * record may be reminded of `togetherMs` early, with those that are due then.
 */
export class Deadlines {
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #soon = new Chain();
  /** Those that are due in more than `soonMs`, of which there may be many. */
  readonly #later = new Chain();
  /** No record of `#later` is due before. */
  #laterFrom = Number.POSITIVE_INFINITY;
  /** When its timer fires. */
  #armedFor = Number.POSITIVE_INFINITY;
  #disarm: (() => void) | undefined;
  #size = 0;

  constructor(clock: Pick<Clock, 'now' | 'after'> = ownClock) {
    this.#clock = clock;
  }

  /** In milliseconds. */
  now(): number {
    return this.#clock.now();
  }

  /** How many records are in it. */
  get size(): number {
    return this.#size;
  }

  /** Reminds of it at `due`, also if it is here already. @param now in milliseconds of the clock */
  enter(one: Due, now: number = this.#clock.now()): void {
    if (one.before) this.leave(one);
    this.#size++;
    this.#put(one, now);
    if (one.due < this.#armedFor) this.#arm(one.due, now);
  }

  leave(one: Due): void {
    if (unlink(one)) this.#size--;
  }

  #put(one: Due, now: number): void {
    const isSoon = one.due - now <= TUNNEL.soonMs;
    if (!isSoon) this.#laterFrom = Math.min(this.#laterFrom, one.due);
    (isSoon ? this.#soon : this.#later).add(one);
  }

  #arm(at: number, now: number): void {
    this.#disarm?.();
    const ms = Math.min(Math.max(0, Math.round(at - now)), LONGEST_TIMER);
    this.#armedFor = now + ms;
    this.#disarm = this.#clock.after(ms, () => this.#pass());
  }

  #pass(): void {
    // A timer that has fired says that its time has come.
    const now = Math.max(this.#armedFor, this.#clock.now());
    this.#armedFor = Number.POSITIVE_INFINITY;
    this.#disarm = undefined;
    const due = new Chain();
    let next = this.#sort(this.#soon, due, now);
    if (this.#laterFrom <= now + TUNNEL.remindTogetherMs) {
      this.#laterFrom = Number.POSITIVE_INFINITY;
      next = Math.min(next, this.#sort(this.#later, due, now));
    }
    next = Math.min(next, this.#laterFrom);
    if (next < Number.POSITIVE_INFINITY) this.#arm(next, now);
    for (let one = due.first; one; one = due.first) {
      this.leave(one);
      one.remind();
    }
  }

  /** Puts each record of a chain where it is to be by now. @returns when the next one is due, of those that are due soon */
  #sort(chain: Chain, due: Chain, now: number): number {
    let next = Number.POSITIVE_INFINITY;
    const { behind: first, before: last } = chain;
    for (let one: Due = first, isLast = one === chain; !isLast; ) {
      const following = one.behind as Due;
      isLast = one === last;
      unlink(one);
      if (one.due <= now + TUNNEL.remindTogetherMs) due.add(one);
      else {
        this.#put(one, now);
        next = Math.min(next, one.due);
      }
      one = following;
    }
    return next;
  }
}

/** It holds no process: what waits for an answer has a connection that does. */
const ownClock: Pick<Clock, 'now' | 'after'> = {
  now: systemClock.now,
  after(ms, run) {
    const timer = setTimeout(run, ms).unref();
    return () => clearTimeout(timer);
  },
};

/** Of this process. */
export const deadlines = new Deadlines();
