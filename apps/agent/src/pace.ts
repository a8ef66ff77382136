import type { Clock } from '@isthmus/runtime';
import type { Target } from './addresses.ts';

/** Agents that lost the same server, or hear of the same new one, connect at random times within this, in milliseconds. */
const STAGGER_MS = 2000;

/**
 * An attempt that takes longer does not delay the next one, in milliseconds. This doubles with each further pending attempt: a server
 * that is slow because thousands connected at once would become slower still, and never recover.
 */
export const YOUNG_ATTEMPT_MS = 1000;

/** Attempts at a time: those that begin after 0, 1, 3 and 7 s, before the first is abandoned after 10 s. */
const MAX_PENDING_ATTEMPTS = 4;

/**
 * The same for an agent that still has a session, in milliseconds: it is in no hurry. Measured with 2,000 agents that lost a session at
 * the same moment: with a second attempt each after a second, all hubs together did only handshakes that their agents had abandoned by
 * the time they were done.
 */
const PATIENT_ATTEMPT_MS = 15_000;

/**
 * How long an attempt may take until the session is established, in milliseconds: without a session, and with one. After each attempt
 * that took too long, the first doubles up to the second: otherwise, hubs whose handshakes take longer than agents wait would never
 * finish one.
 */
const URGENT_TIMEOUT = 10_000;
const CALM_TIMEOUT = 40_000;

/** After this many failures in a row, the next address has to wait too, for this long in milliseconds: a list may be long. */
const FREE_FAILURES = 8;
const FAILURE_GAP_MS = 250;

/** How much earlier than its clock a timer may fire, in milliseconds. */
const TIMER_EARLY_MS = 50;

/** An attempt to connect, and when it began. */
export type Attempt = Target & {
  readonly since: number;
  /** Whether it began while there was a session. */
  readonly calm: boolean;
  /** How long it may take, in milliseconds. */
  readonly timeout: number;
};

/**
 * How fast an agent replaces missing sessions. Without any session it tries at once, one address after another. Otherwise it waits a
 * random time, because a whole herd of agents has seen the same event.
 */
export class Pace {
  readonly #clock: Clock;
  readonly #pending = new Set<Attempt>();
  /** When to replace a missing session. */
  #from: number | undefined;
  #failures = 0;
  /** How many of them took too long. */
  #late = 0;
  #connected = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get pending(): readonly Attempt[] {
    return [...this.#pending];
  }

  /** Failed attempts since a session began, or the last one was lost. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * Returns the milliseconds until one more attempt may begin.
   * @param connected whether there is any session
   * @param alone whether no other agent has seen the reason to connect
   */
  wait(missing: number, connected: boolean, alone = !connected): number {
    const now = this.#clock.now();
    this.#connected = connected;
    this.#from ??= alone ? now : now + this.#clock.random() * STAGGER_MS;
    if (this.#young.length >= Math.max(1, missing) || this.#counted.length >= MAX_PENDING_ATTEMPTS)
      return YOUNG_ATTEMPT_MS;
    const mayWait = connected || this.#failures > FREE_FAILURES;
    return mayWait ? Math.max(0, this.#from - now) : 0;
  }

  /** What not to try now: a hub that hangs gets no second attempt. A load balancer that led to it may lead to another next time. */
  get engaged(): readonly Attempt[] {
    const young = this.#young;
    return this.pending.filter((attempt) => attempt.server || young.includes(attempt));
  }

  begin(target: Target, calm: boolean): Attempt {
    const timeout = calm ? CALM_TIMEOUT : Math.min(CALM_TIMEOUT, URGENT_TIMEOUT * 2 ** this.#late);
    const attempt = { ...target, since: this.#clock.now(), calm, timeout };
    this.#pending.add(attempt);
    return attempt;
  }

  end(attempt: Attempt): void {
    this.#pending.delete(attempt);
  }

  failed({ since, timeout }: Attempt): void {
    if (this.#clock.now() - since >= timeout - TIMER_EARLY_MS) this.#late++;
    if (++this.#failures > FREE_FAILURES) this.#from = this.#clock.now() + FAILURE_GAP_MS;
  }

  /** Call when nothing is missing, or something else than before: the next need draws a time of its own. */
  anew(): void {
    this.#from = undefined;
  }

  /** Call when a session began, or the last useful one was lost. */
  afresh(): void {
    this.#failures = 0;
    this.#late = 0;
    this.anew();
  }

  /** The attempts that an agent waits for before it tries another. One that lost its last session meanwhile waits for no calm attempt. */
  get #counted(): Attempt[] {
    return this.pending.filter(({ calm }) => this.#connected || !calm);
  }

  get #young(): Attempt[] {
    const counted = this.#counted;
    const patience = this.#connected ? PATIENT_ATTEMPT_MS : YOUNG_ATTEMPT_MS * 2 ** Math.max(0, counted.length - 1);
    return counted.filter(({ since }) => this.#clock.now() - since < patience);
  }
}
