import { LruMap } from '@isthmus/runtime';
import {
  type AttemptKind,
  type AttemptRecord,
  asDialError,
  type Deadlines,
  type Dial,
  DialAbort,
  DialError,
  type DialLog,
  type DialRequest,
  type DialSpan,
  type Due,
  dialLog,
  type Established,
  enterSpan,
  type Observation,
  deadlines as ofThisProcess,
  Silence,
} from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import { countOn } from './directory.ts';
import type { Session } from './placement.ts';
import { bestOf, lookups, type RouteOptions, type RouteTo, Suspects, serving } from './route.ts';

export interface RoutingOptions extends Omit<RouteOptions, 'suspects'> {
  /** How long a dial waits in total, in milliseconds, for a session to arrive while there is none to try. */
  readonly parkTimeout: number;
  readonly observation: Observation;
  /** Default: those of the process. */
  readonly deadlines?: Deadlines;
}

/** What all dials of a gateway share. */
interface Routing extends RoutingOptions {
  /** For attempts after one that failed. */
  readonly budget: RetryBudget;
  /** For attempts beside one that is silent. Hedges must not use up the retries that the death of a hub needs. */
  readonly hedges: RetryBudget;
  readonly suspects: Suspects;
  readonly deadlines: Deadlines;
}

/**
 * The gateway's Dial: chooses a session and dials through its hub. As long as nobody has answered for the destination it tries
 * another session: at once when an attempt fails, and in parallel when an attempt is not acknowledged in time.
 */
export function routed(options: RoutingOptions, suspects: Suspects = new Suspects()): Dial {
  const { deadlines = ofThisProcess } = options;
  const routing = { ...options, suspects, deadlines, budget: new RetryBudget(), hedges: new RetryBudget() };
  return (request) => {
    if (!routing.budget.full) routing.budget.earn(request.tenant);
    if (!routing.hedges.full) routing.hedges.earn(request.tenant);
    return new Attempts(request, routing).run();
  };
}

/** One try through one session. */
interface Attempt {
  readonly entry: AttemptRecord;
  readonly span: DialSpan<AttemptRecord> | undefined;
  readonly abort: DialAbort;
  /** Before its first word, then before its answer. */
  readonly silence: Silence;
  /** Its agent has the dial: a Go agent tells no times. */
  acknowledged: boolean;
}

/** What a dial is doing: attempts run only while it is `trying`. Parked, there is no session to try, and `leave` ends the wait. */
type State = 'trying' | 'settled' | { readonly leave: () => void };

/**
 * One dial's attempts. The first answer from a destination counts, whether it accepts or refuses. The other attempts are then aborted,
 * before any byte is sent on them. With no session to try, the dial is parked until one arrives.
 */
class Attempts implements Due {
  before: Due | undefined;
  behind: Due | undefined;
  /** When parking ends; set once the dial has been parked. */
  due = Number.POSITIVE_INFINITY;
  readonly #request: DialRequest;
  readonly #routing: Routing;
  readonly #log: DialLog;
  readonly #outcome = Promise.withResolvers<Established>();
  readonly #to: { -readonly [Field in keyof RouteTo]: RouteTo[Field] };
  readonly #running: Attempt[] = [];
  readonly #abandon = () =>
    this.#guarded(() => {
      for (const { abort } of this.#running) abort.abort();
      if (this.#running.length === 0) this.#fail(this.#refusal());
    });
  #state: State = 'trying';
  /** How many attempts were made before it was parked last. Their sessions may be tried again. */
  #madeBefore = 0;
  /** Why the last attempt failed that did, and whether this gateway has no link to its hub any more. */
  #last: DialError | undefined;
  #hubLost = false;

  constructor(request: DialRequest, routing: Routing) {
    this.#request = request;
    this.#routing = routing;
    this.#log = request.log ?? dialLog();
    const { tenant, destination, agent } = request;
    this.#to = { tenant, host: destination.host, agent };
  }

  /** An exception in our own code fails the dial. */
  #guarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#fault(error as Error);
    }
  }

  #fault(error: Error): void {
    this.#fail(asDialError(error));
    this.#routing.observation.events.emit('fault', 'routing', this.#request.caller?.remote ?? '', error);
  }

  /** Returns the best session that was not tried, as things are now. The first attempt need not ask which were. */
  #best(): Session | undefined {
    const { attempts } = this.#log;
    const tried = attempts.length - this.#madeBefore;
    this.#to.tried = tried > 0 ? new Set(attempts.slice(-tried).map(({ sessionId }) => sessionId)) : undefined;
    return bestOf(this.#routing, this.#to);
  }

  run(): Promise<Established> {
    const { signal } = this.#request;
    signal.addEventListener('abort', this.#abandon, { once: true });
    if (signal.aborted) this.#abandon();
    else if (!this.#start()) this.#wait();
    return this.#outcome.promise;
  }

  /** Tries one more session. If there is none, and no attempt runs, waits for one. */
  #proceed(): void {
    if (this.#state === 'trying' && !this.#start() && this.#running.length === 0) this.#wait();
  }

  /** Parks the dial if a session may arrive, and fails it otherwise. */
  #wait(): void {
    const mayRetry =
      this.#log.attempts.length === 0 ||
      (this.#log.attempts.length < DIRECTORY.attempts && !this.#routing.budget.spent(this.#request.tenant));
    if (mayRetry && this.#hopeful()) this.#park();
    else this.#fail(this.#refusal());
  }

  /**
   * Starts an attempt through the best session that was not tried. Every attempt but the first takes one of its kind out of a budget.
   * @returns false without a session to try, or with nothing left in the budget
   */
  #start(again: AttemptKind = 'retry'): boolean {
    const made = this.#log.attempts.length;
    if (this.#state !== 'trying' || made === DIRECTORY.attempts) return false;
    const session = this.#best();
    const dial = session && this.#routing.nextHop(session.record.hubId)?.dial;
    if (!dial) return false;
    const kind = made === 0 ? 'first' : again;
    const { budget, hedges } = this.#routing;
    if (kind !== 'first' && !(kind === 'hedge' ? hedges : budget).spend(this.#request.tenant)) return false;
    try {
      this.#attempt(kind, session, dial);
    } catch (error) {
      this.#fault(error as Error);
    }
    return true;
  }

  /** Whether a session may arrive soon that can take the dial. */
  #hopeful(): boolean {
    // It has waited before, and its time is not over.
    if (this.due < Number.POSITIVE_INFINITY) return true;
    // The session was gone, or ended under the dial: its agent restarts, or another takes its place. If it refused, waiting does not help.
    const why = this.#last?.code;
    if (why) return why === 'destination_unavailable' || why === 'connection_terminated' || this.#hubLost;
    // No attempt yet: the tenant has no session at all, or those for this destination cannot be reached.
    if (this.#routing.directory.sessionsOf(this.#request.tenant) === 0) return true;
    const [candidate] = serving(this.#routing, this.#to);
    return candidate !== undefined;
  }

  #park(): void {
    const { directory, nextHop, parkTimeout, deadlines } = this.#routing;
    const { tenant, deadline } = this.#request;
    const now = performance.now();
    this.due = Math.min(this.due, now + parkTimeout, deadline);
    if (this.due <= now) {
      this.#fail(this.#refusal());
      return;
    }
    const { events } = this.#routing.observation;
    deadlines.enter(this);
    events.emit('dial:park', this.#request);
    const giveUp = directory.onArrival(tenant, (hubId) => {
      if (nextHop(hubId) === undefined) return;
      leave();
      // Runs once for all sessions that arrive together. It may retry sessions whose link was lost.
      const proceed = () => {
        this.#madeBefore = this.#log.attempts.length;
        this.#state = 'trying';
        this.#proceed();
      };
      const next = setImmediate(() => this.#guarded(proceed));
      this.#state = { leave: () => clearImmediate(next) };
    });
    const leave = () => {
      deadlines.leave(this);
      giveUp();
      this.#log.parkedMs += performance.now() - now;
      events.emit('dial:unpark', this.#request);
    };
    this.#state = { leave };
  }

  /** It was parked for too long. */
  remind(): void {
    this.#guarded(() => this.#fail(this.#refusal()));
  }

  #attempt(kind: AttemptKind, session: Session, dial: Dial): void {
    const { sessionId, agentId, hubId } = session.record;
    const { observation, deadlines } = this.#routing;
    const entry: AttemptRecord = { kind, sessionId, agentId, hubId, start: performance.now(), outcome: 'running' };
    this.#log.attempts.push(entry);
    const span = observation.tracer?.attempt(this.#request, entry, this.#log.attempts.length);
    const silent = () => this.#guarded(() => this.#hedge(entry));
    const silence = new Silence(DIRECTORY.hedgeAfterMs, silent, deadlines);
    const attempt: Attempt = { entry, span, abort: new DialAbort(), silence, acknowledged: false };
    this.#running.push(attempt);
    const release = countOn(session);
    const failed = (thrown: unknown) => {
      release();
      this.#guarded(() => this.#failed(attempt, asDialError(thrown)));
    };
    const answered = (established: Established) => {
      try {
        this.#routing.suspects.clear(hubId, sessionId);
        if (this.#state === 'settled') {
          established.end.abort(new Error('another attempt was faster'));
          release();
          return;
        }
        this.#request.acknowledged?.();
        this.#end(attempt, 'established');
        this.#settle();
        this.#outcome.resolve(established);
        established.end.whenLeft(release);
      } catch (thrown) {
        established.end.abort(thrown as Error);
        failed(thrown);
      }
    };
    const asked: DialRequest = {
      ...this.#request,
      session: sessionId,
      acknowledged: () => this.#awaitAnswer(attempt),
      underWay: silence.underWay,
      signal: attempt.abort,
    };
    if (span) enterSpan(asked, span);
    try {
      dial(asked).then(answered, failed);
    } catch (thrown) {
      failed(thrown);
    }
  }

  /** An attempt is over. Its outcome is written into the dial's log and its span. */
  #end(attempt: Attempt, outcome: AttemptRecord['outcome'], error?: DialError): void {
    const { entry, span, silence } = attempt;
    silence.heard();
    const at = this.#running.indexOf(attempt);
    if (at >= 0) this.#running.splice(at, 1);
    entry.outcome = outcome;
    entry.ms = performance.now() - entry.start;
    if (error) entry.error = error;
    span?.end(entry);
  }

  #awaitAnswer(attempt: Attempt): void {
    const { entry, silence } = attempt;
    attempt.acknowledged = true;
    this.#routing.suspects.clear(entry.hubId, entry.sessionId);
    if (this.#state === 'settled') return;
    this.#request.acknowledged?.();
    if (this.#running.includes(attempt))
      silence.awaitNext(DIRECTORY.hungAfterMs, () => this.#guarded(() => this.#hedge(entry, false)));
  }

  /** Tries another session beside one that is silent. @param withHub whether its hub may hang, too: one in this process does not */
  #hedge({ sessionId, hubId }: AttemptRecord, withHub = hubId !== this.#routing.directory.ownHub): void {
    this.#routing.suspects.accuse(this.#request.tenant, sessionId, ...(withHub ? [hubId] : []));
    this.#start('hedge');
  }

  #failed(attempt: Attempt, error: DialError): void {
    if (this.#state === 'settled') return;
    const { sessionId, hubId } = attempt.entry;
    // After the caller gave up, the error says only that, so it is not the attempt's own.
    if (this.#request.signal.aborted && !error.expired) this.#end(attempt, 'overtaken');
    else this.#end(attempt, 'failed', error);
    this.#last = error;
    this.#hubLost = this.#routing.nextHop(hubId) === undefined;
    // What is out of sockets or memory refuses faster than another serves, so it would look the least busy: the agent, or else the hub itself.
    if (error.retryable && error.code === 'connection_limit_reached') {
      const byAgent = attempt.acknowledged || error.timing.agentMs !== undefined;
      this.#routing.suspects.accuse(this.#request.tenant, byAgent ? sessionId : hubId);
    }
    // The hub knows its sessions better than our copy of the registry.
    if (error.retryable && error.code === 'destination_unavailable') this.#routing.directory.forget(sessionId);
    if (error.retryable && !this.#request.signal.aborted) this.#proceed();
    else if (!error.retryable || this.#running.length === 0) this.#fail(this.#refusal());
  }

  #fail(error: DialError): void {
    if (this.#state === 'settled') return;
    this.#outcome.reject(error);
    this.#settle();
  }

  #settle(): void {
    const before = this.#state;
    this.#state = 'settled';
    this.#request.signal.removeEventListener('abort', this.#abandon);
    if (typeof before === 'object') before.leave();
    for (const attempt of [...this.#running]) {
      this.#end(attempt, 'overtaken');
      attempt.abort.abort();
    }
  }

  /** Returns why the dial failed: the last attempt's error, or that there was no session to try. */
  #refusal(): DialError {
    const last = this.#last;
    if (last && !(last.retryable && last.code === 'destination_unavailable')) return last;
    // A session may be left, but no attempt.
    if (!this.#best()) {
      for (const { record } of serving(this.#routing, this.#to))
        if (!this.#to.tried?.has(record.sessionId)) {
          const text = `hub ${record.hubId} cannot be reached`;
          return new DialError('connection_terminated', text, { retryable: true, cause: last });
        }
    }
    const agents = new Set<string>();
    for (const { quarantined } of lookups(this.#routing, this.#to))
      for (const { record } of quarantined) if (agents.add(record.agentId).size === 2) break;
    // Upstream's text, which operators search for.
    return new DialError('destination_unavailable', `No agent available${quarantineText([...agents])}`, {
      cause: last,
    });
  }
}

function quarantineText([agentId, other]: readonly string[]): string {
  if (agentId === undefined) return '';
  return other === undefined ? `: ${agentId} is in quarantine` : `: ${agentId} and others are in quarantine`;
}

/**
 * Limits what a gateway tries beyond first attempts, so that it does not overload a plane in trouble. A gateway has one for retries, and
 * one for hedges. Each tenant has its own share, so that one whose agents fail takes none of another's.
 */
export class RetryBudget {
  #left = DIRECTORY.allRetries;
  /** What is left to those that have not all of theirs. */
  readonly #lefts = new LruMap<string, number>(DIRECTORY.retryTenants);
  /** Whether nothing is spent. Its own methods alone change it. */
  full = true;

  /** Call this once per dial. While it is full, nothing can be earned. */
  earn(tenant: string): void {
    this.#left = Math.min(DIRECTORY.allRetries, this.#left + DIRECTORY.retriesPerDial);
    if (this.#lefts.has(tenant)) this.#set(tenant, this.#of(tenant) + DIRECTORY.retriesPerDial);
    this.full = this.#left === DIRECTORY.allRetries && this.#lefts.size === 0;
  }

  /** Whether no retry is left. */
  spent(tenant: string): boolean {
    return this.#left < 1 || this.#of(tenant) < 1;
  }

  /** Takes one retry out of the budget. @returns false if none was left */
  spend(tenant: string): boolean {
    if (this.spent(tenant)) return false;
    this.full = false;
    this.#left--;
    this.#set(tenant, this.#of(tenant) - 1);
    return true;
  }

  #of(tenant: string): number {
    return this.#lefts.get(tenant) ?? DIRECTORY.tenantRetries;
  }

  #set(tenant: string, left: number): void {
    if (left >= DIRECTORY.tenantRetries) this.#lefts.delete(tenant);
    else this.#lefts.set(tenant, left);
  }
}
