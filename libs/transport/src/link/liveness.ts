import type { Http2Session } from '@isthmus/http2';
import { guarding } from '@isthmus/runtime';

/** How often a link is looked at for bytes that came, in milliseconds. */
export const LOOK_EVERY = 250;

/** After so many looks without a byte, either way, the other side is asked for one, by PING. */
const ASK_AFTER = 4;

/**
 * After so many looks without a byte it is dead: 2.25 to 2.5 s after the last one, 1.25 s after it was asked, and before 3 s are
 * over on a machine that is short of processor time too.
 */
const DEAD_AFTER = 9;

/** Calls everyone who looks, by one timer for all: thousands of timers of a hub at rest cost more than what they look at. */
export class Looks {
  readonly #looks = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;

  /** @returns looks no more */
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

/** Of all links of this process. */
const LOOKS = new Looks();

/**
 * Ends a link from which nothing comes any more: a hung process, or a half-open connection. Whoever finds the link silent
 * first asks, and the question is a sign of life to the other side, so a link at rest carries one PING in a second and a quarter.
 * A side that only receives asks too: on a slow way the other one hears nothing of it but a window's update now and then, and
 * its own PING waits behind what it sends.
 *
 * Silence is counted in looks, not in time: a process that was itself stopped, or too busy to look, does not blame its peers
 * for the time it slept.
 */
export function watchLiveness(session: Http2Session, dead: (error: Error) => void, looks = LOOKS): void {
  let { bytesRead, bytesWritten } = session;
  let [silent, mute] = [0, 0];
  // One that throws must not keep the others from their looks.
  const guarded = guarding(dead);
  const look = () => {
    silent = session.bytesRead === bytesRead ? silent + 1 : 0;
    mute = session.bytesWritten === bytesWritten ? mute + 1 : 0;
    ({ bytesRead, bytesWritten } = session);
    if (silent === DEAD_AFTER) dead(new Error(`silent for ${(DEAD_AFTER * LOOK_EVERY) / 1000} s, and to PING`));
    else if (silent === ASK_AFTER || mute === ASK_AFTER) session.ping();
  };
  const quit = looks.add(guarded(look));
  session.once('close', quit);
}
