import { notAuthorisedIn } from '@isthmus/tunnel';
import { TELEMETRY } from '../defaults.ts';

/** How many events of one kind may pass in a window. */
interface BurstLimit {
  readonly most: number;
  readonly windowMs: number;
}

interface Window {
  seen: number;
  /** Logs the latest line that was held back. */
  last?: () => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Lets the first events of each kind in a time window pass, and at the window's end reports how many did not. A kind is forgotten with
 * its window, so idle kinds cost nothing.
 */
export class Bursts {
  readonly #windows = new Map<string, Window>();
  readonly #limit: BurstLimit;
  readonly #tell: (kind: string, leftOut: number) => void;

  constructor(limit: BurstLimit, tell: (kind: string, leftOut: number) => void) {
    this.#limit = limit;
    this.#tell = tell;
  }

  /** Counts an event. @returns whether it is among the first */
  pass(kind: string): boolean {
    return this.#count(kind).seen <= this.#limit.most;
  }

  /** Logs the line if it may pass. The last line held back in a window is logged at the window's end: it is the current state. */
  say(kind: string, line: () => void): void {
    const window = this.#count(kind);
    if (window.seen <= this.#limit.most) line();
    else window.last = line;
  }

  /** Ends all windows now. */
  end(): void {
    for (const kind of [...this.#windows.keys()]) this.#close(kind);
  }

  #count(kind: string): Window {
    let window = this.#windows.get(kind);
    if (!window) {
      const timer = setTimeout(() => this.#close(kind), this.#limit.windowMs).unref();
      window = { seen: 0, timer };
      this.#windows.set(kind, window);
    }
    window.seen++;
    return window;
  }

  #close(kind: string): void {
    const window = this.#windows.get(kind);
    if (!window) return;
    clearTimeout(window.timer);
    this.#windows.delete(kind);
    const { seen, last } = window;
    const leftOut = seen - this.#limit.most - (last ? 1 : 0);
    if (leftOut > 0) this.#tell(kind, leftOut);
    last?.();
  }
}

/** Bursts of lines about things that may flap. At a window's end, a line says how many were dropped. */
export function flapBursts(logger: { warn(fields: object, message: string): void }): Bursts {
  return new Bursts(TELEMETRY.logFlaps, (of, count) => logger.warn({ of, count }, 'further lines were dropped'));
}

/** The kind of a refusal: a port, or a tenant whose peer has proven itself there, so that no peer crowds out those of others. */
export function refusalKind(where: string, error: Error): string {
  const { principal } = notAuthorisedIn(error) ?? {};
  return principal ? `${where} of tenant ${principal.tenant}` : where;
}
