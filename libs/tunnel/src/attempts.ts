import { deferred } from './deferred.ts';
import type { Dial, DialRequest, Established } from './dial.ts';
import type { Directory, Route } from './directory.ts';
import { asDialError, DialError } from './errors.ts';
import type { SessionRecord } from './records.ts';
import type { RetryBudget } from './retry-budget.ts';
import type { Strategy } from './strategies.ts';
import type { Suspects } from './suspects.ts';

/** After this many sessions a dial gives up: what failed so often is not the session's fault. */
const MAX_ATTEMPTS = 5;

/** An attempt that is not acknowledged within so long gets another beside it, in milliseconds. */
const HEDGE_AFTER = 300;

export interface AttemptsOptions {
  readonly directory: Directory;
  readonly strategies: readonly Strategy[];
  readonly zone: string;
  readonly hub: (hubId: string) => Dial | undefined;
  readonly budget: RetryBudget;
  readonly suspects: Suspects;
}

/** One try through one session. */
interface Attempt {
  readonly record: SessionRecord;
  readonly abort: AbortController;
  hedge: NodeJS.Timeout | undefined;
}

/**
 * One dial's attempts. The first answer that came from a destination counts, whether yes or no; what still runs then is
 * aborted before a byte was sent on it.
 */
export class Attempts {
  readonly #request: DialRequest;
  readonly #options: AttemptsOptions;
  readonly #outcome = deferred<Established>();
  readonly #running = new Set<Attempt>();
  readonly #tried = new Set<string>();
  #settled = false;
  #last: DialError | undefined;

  constructor(request: DialRequest, options: AttemptsOptions) {
    this.#request = request;
    this.#options = options;
  }

  async run(): Promise<Established> {
    const { signal } = this.#request;
    const abandon = () => {
      for (const { abort } of this.#running) abort.abort();
    };
    signal.addEventListener('abort', abandon, { once: true });
    if (signal.aborted || !this.#start()) this.#fail(this.#refusal());
    try {
      return await this.#outcome.promise;
    } finally {
      signal.removeEventListener('abort', abandon);
    }
  }

  /** @returns whether there was a session to try */
  #start(): boolean {
    if (this.#tried.size >= MAX_ATTEMPTS) return false;
    const route = this.#choose();
    const dial = route && this.#options.hub(route.record.hubId);
    if (!route || !dial) return false;
    void this.#attempt(route, dial);
    return true;
  }

  /** A session that is neither tried nor silent, if there is one; of those that are silent, if there is no other. */
  #choose(): Route | undefined {
    const { directory, strategies, zone, hub, suspects } = this.#options;
    const { tenant, destination } = this.#request;
    const choice = { ...{ tenant, host: destination.host, strategies, zone }, excluded: this.#tried };
    const reachable = ({ hubId }: SessionRecord) => hub(hubId) !== undefined;
    const answers = (session: SessionRecord) =>
      reachable(session) && !suspects.has(session.hubId) && !suspects.has(session.sessionId);
    return directory.choose({ ...choice, usable: answers }) ?? directory.choose({ ...choice, usable: reachable });
  }

  async #attempt(route: Route, dial: Dial): Promise<void> {
    const { record } = route;
    const attempt: Attempt = { record, abort: new AbortController(), hedge: undefined };
    this.#tried.add(record.sessionId);
    this.#running.add(attempt);
    attempt.hedge = setTimeout(() => this.#hedge(attempt), HEDGE_AFTER);
    route.open++;
    const closed = () => {
      route.open--;
    };
    try {
      const established = await dial({
        ...this.#request,
        session: record.sessionId,
        signal: attempt.abort.signal,
        acknowledged: () => this.#lives(attempt),
      });
      whenClosed(established, closed);
      this.#lives(attempt);
      this.#running.delete(attempt);
      this.#succeed(established);
    } catch (thrown) {
      closed();
      clearTimeout(attempt.hedge);
      this.#running.delete(attempt);
      this.#failed(attempt, asDialError(thrown));
    }
  }

  #lives({ hedge, record }: Attempt): void {
    clearTimeout(hedge);
    this.#options.suspects.clear(record.hubId, record.sessionId);
    if (!this.#settled) this.#request.acknowledged?.();
  }

  /** The session is silent: it, or its hub, may hang. */
  #hedge({ record }: Attempt): void {
    const { suspects, budget } = this.#options;
    suspects.accuse(record.hubId, record.sessionId);
    if (!this.#settled && budget.spend()) this.#start();
  }

  #succeed(established: Established): void {
    if (this.#settled) {
      established.end.abort(new Error('another attempt was faster'));
      return;
    }
    this.#settle();
    this.#outcome.resolve(established);
  }

  #failed({ record }: Attempt, error: DialError): void {
    if (this.#settled) return;
    this.#last = error;
    // The hub's own word outranks the copy of the registry.
    if (error.retryable && error.code === 'destination_unavailable') this.#options.directory.forget(record.sessionId);
    const again = error.retryable && !this.#request.signal.aborted && this.#options.budget.spend() && this.#start();
    if (again) return;
    if (!error.retryable || this.#running.size === 0) this.#fail(this.#refusal());
  }

  #fail(error: DialError): void {
    if (this.#settled) return;
    this.#settle();
    this.#outcome.reject(error);
  }

  #settle(): void {
    this.#settled = true;
    for (const { abort, hedge } of this.#running) {
      clearTimeout(hedge);
      abort.abort();
    }
  }

  /** Why the dial failed: the last attempt's reason, or that there was no session to try. */
  #refusal(): DialError {
    const last = this.#last;
    if (last && !(last.retryable && last.code === 'destination_unavailable')) return last;
    const { directory, strategies, zone } = this.#options;
    const { tenant, destination } = this.#request;
    const lost = directory.choose({ tenant, host: destination.host, strategies, zone, excluded: this.#tried });
    if (lost) {
      const text = `hub ${lost.record.hubId} cannot be reached`;
      return new DialError('connection_terminated', text, { retryable: true, cause: last });
    }
    // Upstream's words, which operators search for.
    return new DialError('destination_unavailable', 'No agent available', { cause: last });
  }
}

function whenClosed({ end: { stream } }: Established, closed: () => void): void {
  if (stream.closed) closed();
  else stream.once('close', closed);
}
