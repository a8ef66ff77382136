import type { Http2Session } from '@isthmus/http2';

/** How often a link is looked at for bytes that came, in milliseconds. */
export const LOOK_EVERY = 250;

/** After so many looks without a byte, either way, the other side is asked for one, by PING. */
const ASK_AFTER = 5;

/** After so many looks without a byte it is dead: 2.5 to 2.75 s after the last one, 1.25 s after it was asked. */
const DEAD_AFTER = 10;

/**
 * Ends a link from which nothing comes any more: a hung process, or a half-open connection. Whoever finds the link silent
 * first asks, and the question is a sign of life to the other side, so a link at rest carries one PING in a second and a half.
 * A side that only receives asks too: on a slow way the other one hears nothing of it but a window's update now and then, and
 * its own PING waits behind what it sends.
 *
 * Silence is counted in looks, not in time: a process that was itself stopped, or too busy to look, does not blame its peers
 * for the time it slept.
 */
export function watchLiveness(session: Http2Session, dead: (error: Error) => void): void {
  let seen = { read: session.bytesRead, written: session.bytesWritten };
  let [silent, mute] = [0, 0];
  const timer = setInterval(() => {
    const now = { read: session.bytesRead, written: session.bytesWritten };
    silent = now.read === seen.read ? silent + 1 : 0;
    mute = now.written === seen.written ? mute + 1 : 0;
    seen = now;
    if (silent === DEAD_AFTER) dead(new Error(`silent for ${(DEAD_AFTER * LOOK_EVERY) / 1000} s, and to PING`));
    else if (silent === ASK_AFTER || mute === ASK_AFTER) session.ping();
  }, LOOK_EVERY);
  timer.unref();
  session.once('close', () => clearInterval(timer));
}
