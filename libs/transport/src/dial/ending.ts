import { deferred } from '@isthmus/runtime';
import { DialError } from '@isthmus/tunnel';

export interface EndingOptions {
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  /** Returns how many dials and tunnels are open. */
  readonly open: () => number;
  /** Ends the connection, because none is open any more. */
  readonly end: (reason: Error) => void;
}

/**
 * How the dialling half of a connection ends. It is open; then, with a reason, takes no new dials, and ends when the last tunnel has
 * ended; then it is closed. Of several reasons, the first counts.
 */
export class Ending {
  readonly #closed = deferred<Error>();
  readonly closed = this.#closed.promise;
  readonly #options: EndingOptions;
  #reason: Error | undefined;

  constructor(options: EndingOptions) {
    this.#options = options;
  }

  /** Why it takes no new dials; undefined while it does. */
  get reason(): Error | undefined {
    return this.#reason;
  }

  refuseDials(reason: Error): void {
    this.#reason ??= reason;
  }

  /** Throws a retryable DialError if no new dial is taken. */
  check(): void {
    if (this.#reason) throw this.lost(this.#reason);
  }

  /** Call after a dial or tunnel has ended. */
  endIfIdle(): void {
    if (this.#reason && this.#options.open() === 0) this.#options.end(this.#reason);
  }

  /** Call when the connection and all its tunnels have ended. */
  over(reason: Error): void {
    this.refuseDials(reason);
    this.#closed.resolve(reason);
  }

  /** The error of a dial that got no answer. It may have reached the destination. */
  lost(cause: Error): DialError {
    const text = `${this.#options.peer}: ${cause.message}`;
    return new DialError('connection_terminated', text, { retryable: true, cause });
  }
}
