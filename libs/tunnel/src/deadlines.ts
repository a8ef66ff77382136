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

/** A ring of records, and of itself. */
class Chain implements Due {
  before: Due = this;
  behind: Due = this;
  due = 0;

  get first(): Due | undefined {
    return this.behind === this ? undefined : this.behind;
  }

  remind(): void {}
}

/**
 * Reminds of what is due. One timer serves all: a dial or a tunnel has one record here for whatever it waits for next, and most leave before. A
 * record may be reminded of `togetherMs` early, with those that are due then.
 */
export class Deadlines {
  /** In milliseconds. */
  readonly now: () => number;
  readonly #clock: Pick<Clock, 'now' | 'after'>;
  readonly #soon = new Chain();
  /** Those that are due in more than `soonMs`, of which there may be many. */
  readonly #later = new Chain();
  /** No record of `#later` is due before. */
  #laterFrom = Number.POSITIVE_INFINITY;
  /** When its timer fires. */
  #armedFor = Number.POSITIVE_INFINITY;
  #disarm: (() => void) | undefined;
  /** How many records are in it. Its own methods alone change it. */
  size = 0;
  /** The time when its timer was last made or fired. Which chain a record is in needs no better one. */
  #seen = 0;

  constructor(clock: Pick<Clock, 'now' | 'after'> = ownClock) {
    this.#clock = clock;
    this.now = clock.now;
  }

  /** Reminds of it at `due`, also if it is here already. */
  enter(one: Due): void {
    if (one.before) this.leave(one);
    if (one.due < this.#armedFor) this.#arm(one.due, this.now());
    this.#put(one);
  }

  leave(one: Due): void {
    const { before, behind } = one;
    if (!before || !behind) return;
    before.behind = behind;
    behind.before = before;
    one.before = undefined;
    one.behind = undefined;
    this.size--;
  }

  /** @param into the chain. Default: the one for its time */
  #put(one: Due, into?: Chain): void {
    let chain = into ?? this.#soon;
    if (!into && one.due - this.#seen > TUNNEL.soonMs) {
      chain = this.#later;
      if (one.due < this.#laterFrom) this.#laterFrom = one.due;
    }
    const last = chain.before;
    one.before = last;
    one.behind = chain;
    last.behind = one;
    chain.before = one;
    this.size++;
  }

  #arm(at: number, now: number): void {
    this.#seen = now;
    this.#disarm?.();
    const ms = Math.min(Math.max(0, Math.round(at - now)), LONGEST_TIMER);
    this.#armedFor = now + ms;
    this.#disarm = this.#clock.after(ms, () => this.#armedFor === now + ms && this.#pass());
  }

  #pass(): void {
    // A timer that has fired says that its time has come.
    const now = Math.max(this.#armedFor, this.now());
    this.#seen = now;
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
      this.leave(one);
      if (one.due <= now + TUNNEL.remindTogetherMs) this.#put(one, due);
      else {
        this.#put(one);
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

/**
 * Waits for the first word from the agent behind a path: for a time that any path gets, and for the round trips of this one. It runs from the
 * beginning.
 */
export class Silence implements Due {
  before: Due | undefined;
  behind: Due | undefined;
  due: number;
  readonly #deadlines: Deadlines;
  #ms: number;
  #silent: (() => void) | undefined;

  /**
   * @param ms how long it waits on a path without round-trip times, in milliseconds
   * @param silent called once, if nothing came in time
   */
  constructor(ms: number, silent: () => void, deadlines: Deadlines) {
    this.#ms = ms;
    this.#silent = silent;
    this.#deadlines = deadlines;
    this.due = deadlines.now() + ms;
    deadlines.enter(this);
  }

  /** A link passes the request on. @param roundTripMs the link's round-trip time */
  readonly underWay = (roundTripMs: number): void => {
    if (!this.#silent) return;
    const before = this.due;
    this.due = this.#deadlines.now() + this.#ms + TUNNEL.roundTrips * roundTripMs;
    if (this.due < before) this.#deadlines.enter(this);
  };

  /** The word came, or nobody waits for it any more. */
  heard(): void {
    this.#silent = undefined;
    this.#deadlines.leave(this);
  }

  /** It came, and from now on this waits for the next one. */
  awaitNext(ms: number, silent: () => void): void {
    this.#ms = ms;
    this.#silent = silent;
    this.due = this.#deadlines.now() + ms;
    this.#deadlines.enter(this);
  }

  remind(): void {
    const silent = this.#silent;
    this.#silent = undefined;
    silent?.();
  }
}
