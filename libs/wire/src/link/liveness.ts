import { guarding } from '@isthmus/runtime';
import { WIRE } from '../defaults.ts';
import type { Http2Link } from './link.ts';

/** How long a link may be silent before this side sends a PING, where it is not the usual second. */
export interface PingInterval {
  /** Whole seconds. */
  readonly seconds: number;
  /** Whether it counts only while the link carries nothing. */
  readonly atRest: boolean;
}

/** Calls all checks from one timer. In a process with thousands of idle links, thousands of timers would cost more than the checks. */
export class LinkChecks {
  readonly #checks = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Returns a function that removes the check. */
  add(check: () => void): () => void {
    this.#checks.add(check);
    this.#timer ??= setInterval(() => {
      for (const each of this.#checks) each();
    }, WIRE.checkEveryMs).unref();
    return () => {
      this.#checks.delete(check);
      if (this.#checks.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }
}

/** The checks of all links of this process. */
const CHECKS = new LinkChecks();

export interface LivenessOptions {
  readonly ping?: PingInterval | undefined;
  readonly carries?: () => boolean;
  readonly checks?: LinkChecks;
}

/**
 * Ends a link that has gone silent because of a hung process or a half-open connection. The first side that finds the link silent sends a
 * PING. The other side hears it, and need not send one itself, so an idle link carries one PING in 1.25 s. A side that only receives sends
 * PINGs too: on a slow path, the other side hears only an occasional WINDOW_UPDATE, and its own PING waits behind its data.
 *
 * Silence is counted in checks, not in time: a process that was stopped, or too busy to check, does not blame its peers for that time.
 *
 * @param ping a longer interval. A dead link is found after 2.25 to 2.5 times this long. The other side may send its PINGs sooner. It may send
 * them later only while the link carries nothing: bulk data could hide its answers
 * @param carries whether the link carries anything
 * @returns whether the process at the other side may have died just now: it was heard as it should be, and it may not have read what was
 * sent since the last check, or in the 250 ms before it
 */
export function watchLiveness(
  link: Http2Link,
  dead: (error: Error) => void,
  { ping, carries = () => false, checks = CHECKS }: LivenessOptions = {},
): () => boolean {
  const { seconds = 1, atRest = false } = ping ?? {};
  let { bytesRead, bytesWritten } = link;
  /** Checks in a row without a byte from the other side, and without one to it. */
  let [silent, unsent] = [0, 0];
  let wasAtRest = false;
  let ask = WIRE.pingAfterChecks * seconds;
  const roundTrip = () => Math.floor((link.rtt || WIRE.unknownRoundTripMs) / WIRE.checkEveryMs);
  const check = () => {
    silent = link.bytesRead === bytesRead ? silent + 1 : 0;
    unsent = link.bytesWritten === bytesWritten ? unsent + 1 : 0;
    ({ bytesRead, bytesWritten } = link);
    const isAsUsual = atRest && carries();
    // A PING that has no answer counts. What the link begins to carry is written on both sides, so `unsent` is small.
    if (isAsUsual && wasAtRest)
      silent = Math.min(WIRE.deadAfterChecks, Math.max(0, silent - WIRE.pingAfterChecks * (seconds - 1)));
    wasAtRest = atRest && !isAsUsual;
    const scale = isAsUsual ? 1 : seconds;
    ask = WIRE.pingAfterChecks * scale;
    if (silent >= WIRE.deadAfterChecks * scale + roundTrip())
      dead(new Error(`silent for ${(silent * WIRE.checkEveryMs) / 1000} s, even to PING`));
    else if (silent === ask || unsent === ask) link.ping();
  };
  // An exception in one check must not skip the others.
  const quit = checks.add(guarding(dead)(check));
  link.once('close', quit);
  return () => {
    const heard = silent <= ask + 1 + roundTrip() || link.bytesRead !== bytesRead;
    return heard && (unsent === 0 || link.bytesWritten !== bytesWritten);
  };
}
