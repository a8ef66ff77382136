import { Rounds, type TakesTurns } from '@isthmus/runtime';
import { getOrPut } from '../get-or-put.ts';
import { AVERAGED_OVER_SECONDS, BusyLoop, type BusyLoopOptions } from '../limits/busy-loop.ts';
import type { Dial, DialRequest, Established } from './dial.ts';
import { DialError } from './errors.ts';

/** How many dials per second of one tenant never wait. */
const FREE_DIALS_PER_SECOND = 100;

/**
 * How many waiting dials of all tenants always start per second. The loop may be busy with something else, and these dials, of 1 ms each,
 * take a tenth of it. If one tenant dials alone, more start: they take half of the loop, and only other tenants' tunnels wait for them.
 */
const LEAST_DIALS_PER_SECOND = 100;
const LEAST_ALONE_PER_SECOND = 500;

/** How many waiting dials start per second when a flood begins, before its effect is known, and at most. */
const FIRST_DIALS_PER_SECOND = 500;
const MOST_DIALS_PER_SECOND = 5000;

/** A tenant that dials less often than this is forgotten, in dials per second. */
const FORGET_BELOW_PER_SECOND = 0.5;

/** How long a dial may wait, in milliseconds. An API server gives up after 30 s. */
const LONGEST_WAIT = 10_000;

/**
 * Keeps time of the event loop for others while one tenant floods: dials of a tenant that makes more than its share of all wait until
 * the loop has time to spare. Turns alone are not enough, because whatever starts makes work later, and a loop without a pause makes
 * every tunnel wait. `DialLimiter` bounds how many wait.
 *
 * A tenant that waits starts as many dials as any that does not wait, however busy the loop is. So two that want about the same start about
 * the same.
 */
export function inSpareTime(dial: Dial, options: BusyLoopOptions): Dial {
  const spare = new SpareTime(dial, options);
  return (request) => spare.dial(request);
}

class SpareTime {
  readonly #dial: Dial;
  readonly #loop: BusyLoop;
  /** Those that dialled lately. */
  readonly #tenants = new Map<string, Line>();
  /** Those that have dials waiting. */
  readonly #rounds = new Rounds<Line>(1);
  /** Dials a second that one tenant may make without waiting. */
  #share = FREE_DIALS_PER_SECOND;
  /** The most dials a second that a tenant starts which does not wait. */
  #mostFree = 0;
  /** Dials a second, of those that wait. */
  #rate = FIRST_DIALS_PER_SECOND;
  /** Of those, how many may start now. */
  #credit = 0;
  /** Whether there were such since the last tick. */
  #wanted = false;

  constructor(dial: Dial, options: BusyLoopOptions) {
    this.#dial = dial;
    this.#loop = new BusyLoop(options);
  }

  dial(request: DialRequest): Promise<Established> {
    this.#begin();
    const line = getOrPut(this.#tenants, request.tenant, () => new Line(request.tenant));
    line.asked++;
    if (line.waiting.size === 0 && this.#isDue(line)) return this.#start(line, request);
    return new Promise((resolve, reject) => {
      const leave = () => {
        request.signal.removeEventListener('abort', abandon);
        line.waiting.delete(waiting);
      };
      const go = () => {
        leave();
        resolve(this.#start(line, request));
      };
      const refuse = (error: DialError) => {
        leave();
        reject(error);
      };
      // What is dialled next sees that nobody waits any more, and makes nothing of it.
      const abandon = () => {
        leave();
        resolve(this.#dial(request));
      };
      const until = this.#loop.now() + LONGEST_WAIT;
      const waiting: Waiting = { until, go, refuse };
      line.waiting.add(waiting);
      request.signal.addEventListener('abort', abandon, { once: true });
      this.#rounds.enter(line);
      this.#wanted = true;
      // What the loop has time for starts at once.
      this.#letGo();
    });
  }

  /** Whether its next dial starts, however busy the loop is. */
  #isDue(line: Line): boolean {
    return line.demand <= this.#share || line.started < this.#mostFree;
  }

  #start(line: Line, request: DialRequest): Promise<Established> {
    line.started++;
    return this.#dial(request);
  }

  #begin(): void {
    if (this.#loop.watched) return;
    this.#credit = this.#most;
    this.#loop.watch((seconds) => this.#tick(seconds));
  }

  #tick(seconds: number): void {
    this.#age(seconds, this.#loop.now());
    if (this.#tenants.size === 0) this.#loop.stop();
    const rate = this.#rate * this.#loop.growth(seconds);
    // Without dials beyond a share, the loop says nothing about how many could start.
    const least = this.#tenants.size > 1 ? LEAST_DIALS_PER_SECOND : LEAST_ALONE_PER_SECOND;
    this.#rate = Math.max(least, Math.min(this.#wanted ? MOST_DIALS_PER_SECOND : FIRST_DIALS_PER_SECOND, rate));
    this.#wanted = this.#rounds.size > 0;
    // A late tick does not let all start at once that should have started one by one.
    this.#credit = Math.min(this.#credit + this.#rate * seconds, this.#most);
    this.#letGo();
  }

  /** The most that may start at once. */
  get #most(): number {
    return 1 + this.#rate * AVERAGED_OVER_SECONDS;
  }

  /** Lets rates fall, and ends waits: of those that took too long, and of tenants that are below their share by now. */
  #age(seconds: number, now: number): void {
    const kept = Math.exp(-seconds);
    let [wanted, mostFree] = [0, 0];
    for (const line of this.#tenants.values()) {
      line.asked *= kept;
      line.started *= kept;
      wanted += line.demand;
      line.endWaits(now);
      while (line.waiting.size > 0 && this.#isDue(line)) line.goFirst();
      if (line.waiting.size === 0) mostFree = Math.max(mostFree, line.started);
      if (line.demand < FORGET_BELOW_PER_SECOND && line.waiting.size === 0 && line.next === undefined)
        this.#tenants.delete(line.tenant);
    }
    this.#share = Math.max(FREE_DIALS_PER_SECOND, wanted / Math.max(2, this.#tenants.size));
    this.#mostFree = mostFree;
  }

  #letGo(): void {
    for (let line = this.#rounds.current; line && this.#credit >= 1; line = this.#rounds.current) {
      if (line.waiting.size > 0) {
        this.#credit--;
        line.goFirst();
      }
      if (line.waiting.size === 0) this.#rounds.leave();
      else this.#rounds.spend(1);
    }
  }
}

interface Waiting {
  /** When it ends, in milliseconds. */
  readonly until: number;
  readonly go: () => void;
  readonly refuse: (error: DialError) => void;
}

/** A tenant's dials that wait, the first to come first. */
class Line implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  readonly tenant: string;
  /** Dials a second that its callers make, and that start, over about a second. */
  asked = 0;
  started = 0;
  readonly waiting = new Set<Waiting>();

  constructor(tenant: string) {
    this.tenant = tenant;
  }

  /** Dials a second that it makes, or would make: callers that wait ask less often, and dials that waited start later. */
  get demand(): number {
    return Math.max(this.asked + this.waiting.size, this.started);
  }

  goFirst(): void {
    const [first] = this.waiting;
    first?.go();
  }

  endWaits(now: number): void {
    for (const { until, refuse } of this.waiting) {
      if (until > now) return;
      const text = `tenant ${this.tenant} dials more than this process has time for: dial less often, or start more gateways or hubs`;
      refuse(new DialError('connection_limit_reached', text));
    }
  }
}
