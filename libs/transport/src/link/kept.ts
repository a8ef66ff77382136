import { Backoff, guarding } from '@isthmus/runtime';
import { TRANSPORT } from '../defaults.ts';

interface Keepable {
  readonly closed: Promise<Error>;
  destroy(reason: Error): void;
}

/** How the last attempt to open a link failed, or how the last link was lost. */
export interface LinkFailure {
  readonly error: Error;
  /** Milliseconds since the epoch. */
  readonly at: number;
}

interface KeptLinkOptions<Kept extends Keepable> {
  /** Opens a link. Rejects with why it cannot, and once the signal aborts. */
  readonly open: (signal: AbortSignal) => Promise<Kept>;
  readonly opened?: (link: Kept) => void;
  /** Called when the link was lost. */
  readonly lost?: (reason: Error) => void;
  /** Called when an attempt to open it failed. @param again whether what was wrong before is wrong still */
  readonly failed: (error: Error, again: boolean) => void;
  /** Called with what one of these has thrown. */
  readonly fault: (error: Error) => void;
  /** Returns the longest pause after a failed attempt or a loss, in milliseconds. */
  readonly mostPauseMs: (error: Error) => number;
}

/** A link that is opened, and opened again whenever it was lost, later after each failure in a row. */
export class KeptLink<Kept extends Keepable> {
  /** The link, while there is one. */
  link: Kept | undefined;
  /** Why there is none. Undefined while there is one, and before the first attempt is over. */
  failure: LinkFailure | undefined;
  readonly #options: KeptLinkOptions<Kept>;
  readonly #backoff = new Backoff(TRANSPORT.linkAgainMs, Number.POSITIVE_INFINITY);
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout;

  /** Begins in a later tick. */
  constructor(options: KeptLinkOptions<Kept>) {
    this.#options = options;
    this.#timer = setTimeout(() => void this.#run(), 0);
  }

  /** Opens no more links, and calls nothing more. The link that is there stays: it is the caller's to end. */
  stop(): void {
    this.#stop.abort();
    clearTimeout(this.#timer);
  }

  async #run(): Promise<void> {
    const { open, opened = () => {}, lost = () => {}, failed, fault, mostPauseMs } = this.#options;
    const guarded = guarding(fault);
    const { signal } = this.#stop;
    let pauseMs: number | undefined;
    const link = await open(signal).catch((error: Error) => error);
    if (signal.aborted) {
      if (!(link instanceof Error)) link.destroy(new Error('it is not wanted any more'));
      return;
    }
    if (link instanceof Error) {
      const again = link.message === this.failure?.error.message;
      this.failure = { error: link, at: Date.now() };
      guarded(failed)(link, again);
    } else {
      const since = performance.now();
      this.link = link;
      this.failure = undefined;
      guarded(opened)(link);
      const error = await link.closed;
      this.link = undefined;
      this.failure = { error, at: Date.now() };
      if (signal.aborted) return;
      // At once: if it was this process' last connection, others will soon think that the process is dead.
      if (performance.now() - since > TRANSPORT.linkProvenMs) {
        this.#backoff.reset();
        pauseMs = 0;
      }
      guarded(lost)(error);
    }
    this.#timer = setTimeout(() => void this.#run(), pauseMs ?? this.#backoff.next(mostPauseMs(this.failure.error)));
  }
}
