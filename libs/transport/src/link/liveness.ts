import type { Http2Session } from '@isthmus/http2';
import { guarding } from '@isthmus/runtime';

/** How often links are checked for received bytes, in milliseconds. */
export const CHECK_EVERY_MS = 250;

/** After this many checks without a byte, this side sends a PING: 1 s. */
const PING_AFTER_CHECKS = 4;

/**
 * After this many checks without a byte, the link is dead: 2.25 to 2.5 s after the last byte, 1.25 s after the PING, and less than 3 s
 * even on a machine short of processor time.
 */
const DEAD_AFTER_CHECKS = 9;

/** How long a link may be silent before this side sends a PING, in milliseconds, unless its agent wants another time. */
export const PING_INTERVAL = PING_AFTER_CHECKS * CHECK_EVERY_MS;

/** So many links to agents have one interval. The next ones have a second more. */
const LINKS_A_SECOND = 500;

/** In seconds. An agent then notices within 12.5 s that its hub hangs: before the 15 s in which tunnels can be resumed are over. */
const LONGEST_SECONDS = 5;

/**
 * Returns the interval for an agent that asks for none, in seconds; undefined for the default. A PING and its answer take 0.05 ms of processor
 * time at each end, so a hub of thousands of idle links would do little else.
 * @param links how many the hub has
 */
export function pingSecondsBeside(links: number): number | undefined {
  const seconds = Math.min(LONGEST_SECONDS, 1 + Math.floor(links / LINKS_A_SECOND));
  return seconds > 1 ? seconds : undefined;
}

/** Calls all checks from one timer. In an idle hub, thousands of timers would cost more than the checks. */
export class LinkChecks {
  readonly #checks = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Returns a function that removes the check. */
  add(check: () => void): () => void {
    this.#checks.add(check);
    this.#timer ??= setInterval(() => {
      for (const each of this.#checks) each();
    }, CHECK_EVERY_MS).unref();
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

/**
 * Ends a link that has gone silent because of a hung process or a half-open connection. The first side that finds the link silent sends a
 * PING. The other side hears it, and need not send one itself, so an idle link carries one PING in 1.25 s. A side that only receives sends
 * PINGs too: on a slow path, the other side hears only an occasional WINDOW_UPDATE, and its own PING waits behind its data.
 *
 * Silence is counted in checks, not in time: a process that was stopped, or too busy to check, does not blame its peers for that time.
 *
 * @param interval how long the link may be silent before this side sends a PING, in milliseconds. A dead link is found after 2.25 to 2.5
 * times this long. The other side may send its PINGs sooner, but not later
 * @param waiting whether the other side owes an answer that it gives at once. Then a long interval does not count: a dead link is found
 * within 2.5 s
 * @returns whether something was sent since the last check, or in the 250 ms before it
 */
export function watchLiveness(
  session: Http2Session,
  dead: (error: Error) => void,
  {
    interval = PING_INTERVAL,
    waiting = () => false,
    checks = CHECKS,
  }: { readonly interval?: number | undefined; readonly waiting?: () => boolean; readonly checks?: LinkChecks } = {},
): () => boolean {
  const scale = interval / PING_INTERVAL;
  const [pingAfter, deadAfter] = [Math.round(PING_AFTER_CHECKS * scale), Math.round(DEAD_AFTER_CHECKS * scale)];
  let { bytesRead, bytesWritten } = session;
  let [silent, mute, waited] = [0, 0, 0];
  // An exception in one check must not skip the others.
  const guarded = guarding(dead);
  const check = () => {
    silent = session.bytesRead === bytesRead ? silent + 1 : 0;
    mute = session.bytesWritten === bytesWritten ? mute + 1 : 0;
    waited = silent > 0 && waiting() ? waited + 1 : 0;
    ({ bytesRead, bytesWritten } = session);
    if (silent === deadAfter || waited === DEAD_AFTER_CHECKS)
      dead(new Error(`silent for ${(silent * CHECK_EVERY_MS) / 1000} s, even to PING`));
    else if (silent === pingAfter || mute === pingAfter || waited === PING_AFTER_CHECKS) session.ping();
  };
  const quit = checks.add(guarded(check));
  session.once('close', quit);
  return () => mute === 0 || session.bytesWritten !== bytesWritten;
}
