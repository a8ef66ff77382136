import type { Http2Session } from '@isthmus/http2';

/** How often a link is looked at for bytes that came, in milliseconds. */
export const LOOK_EVERY = 250;

/** After so many looks without a byte, either way, the other side is asked for one, by PING. */
const ASK_AFTER = 5;

/** So long a side may be silent before it is taken for dead, in milliseconds, unless it is said otherwise: 1.25 s after it was asked. */
const SILENCE = 2500;

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
 * first asks, and the question is a sign of life to the other side, so a link at rest carries one PING in a second and a half.
 * A side that only receives asks too: on a slow way the other one hears nothing of it but a window's update now and then, and
 * its own PING waits behind what it sends.
 *
 * Silence is counted in looks, not in time: a process that was itself stopped, or too busy to look, does not blame its peers
 * for the time it slept.
 *
 * @param silence in milliseconds, a multiple of LOOK_EVERY
 */
export function watchLiveness(
  session: Http2Session,
  dead: (error: Error) => void,
  silence = SILENCE,
  looks = LOOKS,
): void {
  let { bytesRead, bytesWritten } = session;
  let [silent, mute] = [0, 0];
  const quit = looks.add(() => {
    silent = session.bytesRead === bytesRead ? silent + 1 : 0;
    mute = session.bytesWritten === bytesWritten ? mute + 1 : 0;
    ({ bytesRead, bytesWritten } = session);
    if (silent === silence / LOOK_EVERY) dead(new Error(`silent for ${silence / 1000} s, and to PING`));
    else if (silent === ASK_AFTER || mute === ASK_AFTER) session.ping();
  });
  session.once('close', quit);
}
