import { deferred, extended, type Guarded, guarding } from '@isthmus/runtime';
import type { Dial, DialRequest, Established } from '../dial/dial.ts';
import { DialAbort } from '../dial/dial-abort.ts';
import { type AttemptKind, type AttemptRecord, type DialLog, dialLog } from '../dial/dial-log.ts';
import { asDialError, DialError } from '../dial/errors.ts';
import { SignOfLife } from '../dial/sign-of-life.ts';
import { enterSpan } from '../events/trace.ts';
import { type Attempt, countOn, recordOutcome, whenLeft } from './attempt.ts';
import { Candidates } from './candidates.ts';
import type { Route } from './placement.ts';
import type { Routing } from './routing.ts';

/** A dial gives up after this many attempts. After so many failures another session is unlikely to help. */
const MAX_ATTEMPTS = 5;

/** If an attempt is not acknowledged within this time and the round trips of its path, in milliseconds, another one starts in parallel. */
const HEDGE_AFTER = 300;

/**
 * If an attempt was acknowledged but not answered within this time, in milliseconds, another one starts in parallel. Agents answer after 5 s
 * at most, whatever their destination does, so this one hangs: a hub acknowledges for a Go agent, whose protocol does not.
 */
const HUNG_AFTER = 7_000;

/** What a dial is doing. Attempts run only while it is `trying`. */
type State =
  | { readonly at: 'trying'; readonly running: Set<Attempt> }
  /** There is no session to try. `leave` ends the wait. */
  | { readonly at: 'parked'; readonly leave: () => void }
  | { readonly at: 'settled' };

/** The last failure of an attempt. */
interface Failure {
  readonly error: DialError;
  /** This gateway has no link to the attempt's hub any more. */
  readonly hubLost: boolean;
}

/**
 * One dial's attempts. The first answer from a destination counts, whether it accepts or refuses. The other attempts are then aborted,
 * before any byte is sent on them. With no session to try, the dial is parked until one arrives.
 */
export class Attempts {
  readonly #request: DialRequest;
  readonly #routing: Routing;
  readonly #log: DialLog;
  readonly #outcome = deferred<Established>();
  readonly #candidates: Candidates;
  /** An exception in our own code fails the dial. */
  readonly #guarded: Guarded;
  #state: State = { at: 'trying', running: new Set() };
  #last: Failure | undefined;
  /** When parking ends; set once the dial has been parked. */
  #parkedUntil: number | undefined;

  constructor(request: DialRequest, routing: Routing) {
    this.#request = request;
    this.#routing = routing;
    this.#candidates = new Candidates(request, routing);
    this.#log = request.log ?? dialLog();
    this.#guarded = guarding((error) => {
      this.#fail(asDialError(error));
      routing.observation.events.emit('fault', 'routing', request.caller?.remote ?? '', error);
    });
  }

  get #count(): number {
    return this.#log.attempts.length;
  }

  get #running(): Iterable<Attempt> {
    return this.#state.at === 'trying' ? this.#state.running : [];
  }

  /** Whether no attempt runs. */
  get #idle(): boolean {
    return this.#state.at !== 'trying' || this.#state.running.size === 0;
  }

  async run(): Promise<Established> {
    const { signal } = this.#request;
    const abandon = this.#guarded(() => {
      for (const { abort } of this.#running) abort.abort();
      if (this.#idle) this.#fail(this.#refusal());
    });
    signal.addEventListener('abort', abandon, { once: true });
    if (signal.aborted) abandon();
    else this.#proceed();
    try {
      return await this.#outcome.promise;
    } finally {
      signal.removeEventListener('abort', abandon);
    }
  }

  /** Tries one more session. If there is none, parks the dial if one may arrive, and fails it otherwise. */
  #proceed(): void {
    if (this.#state.at !== 'trying' || this.#start() || !this.#idle) return;
    const mayRetry =
      this.#count === 0 || (this.#count < MAX_ATTEMPTS && !this.#routing.budget.spent(this.#request.tenant));
    if (mayRetry && this.#hopeful()) this.#park();
    else this.#fail(this.#refusal());
  }

  /**
   * Starts an attempt through the best session that was not tried. Every attempt but the first takes one of its kind out of a budget.
   * @returns false without a session to try, or with nothing left in the budget
   */
  #start(again: AttemptKind = 'retry'): boolean {
    if (this.#state.at !== 'trying' || this.#count === MAX_ATTEMPTS) return false;
    const { running } = this.#state;
    const route = this.#candidates.next();
    if (!route) return false;
    const dial = this.#routing.hub(route.record.hubId);
    if (!dial) return false;
    const kind = this.#count === 0 ? 'first' : again;
    const { budget, hedges } = this.#routing;
    if (kind !== 'first' && !(kind === 'hedge' ? hedges : budget).spend(this.#request.tenant)) return false;
    this.#guarded(() => this.#attempt(running, kind, route, dial))();
    return true;
  }

  /** Whether a session may arrive soon that can take the dial. */
  #hopeful(): boolean {
    // It has waited before, and its time is not over.
    if (this.#parkedUntil !== undefined) return true;
    // The session was gone, or its hub. If an agent died or refused instead, waiting does not help.
    if (this.#last) return this.#last.error.code === 'destination_unavailable' || this.#last.hubLost;
    // No attempt yet: the tenant has no session at all, or those for this destination cannot be reached.
    return !this.#routing.directory.hasSessions(this.#request.tenant) || this.#candidates.anyServes;
  }

  #park(): void {
    const { directory, hub, parkTimeout } = this.#routing;
    const { tenant, deadline } = this.#request;
    const now = performance.now();
    const left = this.#parkedUntil === undefined ? Math.min(parkTimeout, deadline - now) : this.#parkedUntil - now;
    this.#parkedUntil ??= now + left;
    const expire = this.#guarded(() => this.#fail(this.#refusal()));
    if (left <= 0) {
      expire();
      return;
    }
    const { events } = this.#routing.observation;
    const timer = setTimeout(expire, left);
    events.emit('dial:park', this.#request);
    const giveUp = directory.onArrival(tenant, (hubId) => {
      if (hub(hubId) === undefined) return;
      leave();
      // Runs once for all sessions that arrive together. It may retry sessions whose link was lost.
      const proceed = this.#guarded(() => {
        this.#candidates.reset();
        this.#state = { at: 'trying', running: new Set() };
        this.#proceed();
      });
      const next = setImmediate(proceed);
      this.#state = { at: 'parked', leave: () => clearImmediate(next) };
    });
    const leave = () => {
      clearTimeout(timer);
      giveUp();
      this.#log.parkedMs += performance.now() - now;
      events.emit('dial:unpark', this.#request);
    };
    this.#state = { at: 'parked', leave };
  }

  async #attempt(running: Set<Attempt>, kind: AttemptKind, route: Route, dial: Dial): Promise<void> {
    const { record } = route;
    const { sessionId, agentId, hubId } = record;
    const entry: AttemptRecord = { kind, sessionId, agentId, hubId, start: performance.now(), outcome: 'running' };
    this.#log.attempts.push(entry);
    const span = this.#routing.observation.tracer.attempt(this.#request, entry, this.#count);
    const silent = this.#guarded(() => this.#hedge(attempt));
    const life = new SignOfLife(HEDGE_AFTER, silent);
    const attempt: Attempt = { record, entry, span, abort: new DialAbort(), life };
    this.#candidates.markTried(record);
    running.add(attempt);
    const release = countOn(route);
    try {
      const own = {
        session: record.sessionId,
        signal: attempt.abort,
        acknowledged: () => this.#awaitAnswer(attempt, running),
        underWay: (roundTripMs: number) => attempt.life.underWay(roundTripMs),
      };
      const asked = extended(this.#request, own);
      enterSpan(asked, span);
      const established = await dial(asked);
      whenLeft(established, release);
      this.#lives(attempt);
      running.delete(attempt);
      this.#succeed(attempt, established);
    } catch (thrown) {
      release();
      attempt.life.stop();
      running.delete(attempt);
      this.#failed(attempt, asDialError(thrown));
    }
  }

  #lives({ life, record }: Attempt): void {
    life.stop();
    this.#routing.suspects.clear(record.hubId, record.sessionId);
    if (this.#state.at !== 'settled') this.#request.acknowledged?.();
  }

  #awaitAnswer(attempt: Attempt, running: ReadonlySet<Attempt>): void {
    this.#lives(attempt);
    if (this.#state.at === 'settled' || !running.has(attempt)) return;
    const hung = () => {
      this.#routing.suspects.accuse(this.#request.tenant, attempt.record.sessionId);
      this.#start('hedge');
    };
    attempt.life = new SignOfLife(HUNG_AFTER, this.#guarded(hung));
  }

  /** Called when a session is silent: it or its hub may hang. A hub in this process does not hang. */
  #hedge({ record: { hubId, sessionId } }: Attempt): void {
    const { directory, suspects } = this.#routing;
    suspects.accuse(this.#request.tenant, sessionId, ...(hubId === directory.ownHub ? [] : [hubId]));
    this.#start('hedge');
  }

  #succeed(attempt: Attempt, established: Established): void {
    if (this.#state.at === 'settled') {
      established.end.abort(new Error('another attempt was faster'));
      return;
    }
    recordOutcome(attempt, 'established');
    this.#settle();
    this.#outcome.resolve(established);
  }

  #failed(attempt: Attempt, error: DialError): void {
    if (this.#state.at === 'settled') return;
    const { record } = attempt;
    // After the caller gave up, the error says only that, so it is not the attempt's own.
    if (this.#request.signal.aborted && !error.expired) recordOutcome(attempt, 'overtaken');
    else recordOutcome(attempt, 'failed', error);
    this.#last = { error, hubLost: this.#routing.hub(record.hubId) === undefined };
    // An agent that is out of sockets refuses faster than another serves, so it would look the least busy.
    if (error.retryable && error.code === 'connection_limit_reached')
      this.#routing.suspects.accuse(this.#request.tenant, record.sessionId);
    // The hub knows its sessions better than our copy of the registry.
    if (error.retryable && error.code === 'destination_unavailable') this.#routing.directory.forget(record.sessionId);
    if (error.retryable && !this.#request.signal.aborted) this.#proceed();
    else if (!error.retryable || this.#idle) this.#fail(this.#refusal());
  }

  #fail(error: DialError): void {
    if (this.#state.at === 'settled') return;
    this.#outcome.reject(error);
    this.#settle();
  }

  #settle(): void {
    const before = this.#state;
    this.#state = { at: 'settled' };
    if (before.at === 'parked') before.leave();
    if (before.at !== 'trying') return;
    for (const attempt of before.running) {
      attempt.life.stop();
      attempt.abort.abort();
      recordOutcome(attempt, 'overtaken');
    }
  }

  /** Returns why the dial failed: the last attempt's error, or that there was no session to try. */
  #refusal(): DialError {
    const last = this.#last?.error;
    if (last && !(last.retryable && last.code === 'destination_unavailable')) return last;
    const lost = this.#candidates.outOfReach;
    if (lost) {
      const text = `hub ${lost.hubId} cannot be reached`;
      return new DialError('connection_terminated', text, { retryable: true, cause: last });
    }
    const kept = quarantineText(this.#candidates.quarantined);
    // Upstream's text, which operators search for.
    return new DialError('destination_unavailable', `No agent available${kept}`, { cause: last });
  }
}

function quarantineText([agentId, other]: readonly string[]): string {
  if (agentId === undefined) return '';
  return other === undefined ? `: ${agentId} is in quarantine` : `: ${agentId} and others are in quarantine`;
}
