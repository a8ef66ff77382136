import type { Http2Session } from 'node:http2';
import type { Socket } from 'node:net';

/** How often a link is looked at for bytes that came, in milliseconds. */
export const LOOK_EVERY = 250;

/** After so many looks without a byte the other side is asked for one, by PING. */
const ASK_AFTER = 3;

/** After so many looks without a byte it is dead: 2.5 to 2.75 s after the last one, 1.75 s after it was asked. */
const DEAD_AFTER = 10;

/**
 * Ends a link from which nothing comes any more: a hung process, or a half-open connection. Whoever finds the link silent
 * first asks, and the question is a sign of life to the other side, so a link at rest carries one PING a second.
 *
 * Silence is counted in looks, not in time: a process that was itself stopped, or too busy to look, does not blame its peers
 * for the time it slept.
 *
 * A session that is closing sends no PING any more, on either side of the GOAWAY, while its tunnels may be silent for
 * minutes. There `say` sends some other byte, and each side hears the other's.
 */
export function watchLiveness(
  session: Http2Session,
  socket: Socket,
  dead: (error: Error) => void,
  say: () => void = () => {},
): void {
  let seen = socket.bytesRead;
  let silent = 0;
  const timer = setInterval(() => {
    if (session.destroyed) return;
    const { bytesRead } = socket;
    silent = bytesRead === seen ? silent + 1 : 0;
    seen = bytesRead;
    // Node wants a callback, and refuses a PING that is one too many, which this one never is.
    if (silent === ASK_AFTER && !session.closed) session.ping(() => {});
    if (silent === ASK_AFTER && session.closed) say();
    if (silent === DEAD_AFTER) dead(new Error(`silent for ${(DEAD_AFTER * LOOK_EVERY) / 1000} s, and to PING`));
  }, LOOK_EVERY);
  timer.unref();
  session.once('close', () => clearInterval(timer));
}
