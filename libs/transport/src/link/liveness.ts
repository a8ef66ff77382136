import type { Http2Session } from '@isthmus/http2';
import { guarding } from '@isthmus/runtime';

/** How often a link is checked for received bytes, in milliseconds. */
export const LOOK_EVERY = 250;

/** After this many checks without a byte, this side sends a PING: 1 s. */
const ASK_AFTER = 4;

/**
 * After this many checks without a byte, the link is dead: 2.25 to 2.5 s after the last byte, 1.25 s after the PING, and less than 3 s
 * even on a machine short of processor time.
 */
const DEAD_AFTER = 9;

/** How long a link may be silent before it is asked, in milliseconds, unless its agent wants another time. */
export const PING_INTERVAL = ASK_AFTER * LOOK_EVERY;

/** Calls all checks from one timer. In an idle hub, thousands of timers would cost more than the checks. */
export class Looks {
  readonly #looks = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** Returns a function that removes the check. */
  add(look: () => void): () => void {
    this.#looks.add(look);
    this.#timer ??= setInterval(() => {
      for (const each of this.#looks) each();
    }, LOOK_EVERY).unref();
    return () => {
      this.#looks.delete(look);
      if (this.#looks.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }
}

/** The checks of all links of this process. */
const LOOKS = new Looks();

/**
 * Ends a link that has gone silent: a hung process, or a half-open connection. The first side to find the link silent sends a PING,
 * which is a sign of life to the other side, so an idle link carries one PING in 1.25 s. A side that only receives sends PINGs too: on
 * a slow path, the other side hears only an occasional WINDOW_UPDATE, and its own PING waits behind its data.
 *
 * Silence is counted in checks, not in time: a process that was stopped, or too busy to check, does not blame its peers for that time.
 *
 * @param interval how long the link may be silent before it is asked, in milliseconds. A dead link is found after 2.25 to 2.5 times as long.
 * The other side may ask sooner, but must not wait longer before it answers
 * @returns whether something was sent since the last check, or in the 250 ms before it
 */
export function watchLiveness(
  session: Http2Session,
  dead: (error: Error) => void,
  { interval = PING_INTERVAL, looks = LOOKS }: { readonly interval?: number | undefined; readonly looks?: Looks } = {},
): () => boolean {
  const scale = interval / PING_INTERVAL;
  const [askAfter, deadAfter] = [Math.round(ASK_AFTER * scale), Math.round(DEAD_AFTER * scale)];
  let { bytesRead, bytesWritten } = session;
  let [silent, mute] = [0, 0];
  // An exception in one check must not skip the others.
  const guarded = guarding(dead);
  const look = () => {
    silent = session.bytesRead === bytesRead ? silent + 1 : 0;
    mute = session.bytesWritten === bytesWritten ? mute + 1 : 0;
    ({ bytesRead, bytesWritten } = session);
    if (silent === deadAfter) dead(new Error(`silent for ${(deadAfter * LOOK_EVERY) / 1000} s, even to PING`));
    else if (silent === askAfter || mute === askAfter) session.ping();
  };
  const quit = looks.add(guarded(look));
  session.once('close', quit);
  return () => mute === 0 || session.bytesWritten !== bytesWritten;
}
