import type { Http2Session } from 'node:http2';

/** How often a link is asked for a sign of life, and how long it may stay silent, in milliseconds. */
const PING_EVERY = 1000;
const SILENT_FOR = 2500;

/**
 * Ends a link whose other side does not answer PING: a hung process or a half-open connection is noticed within
 * 3.5 s. A process that was itself stopped does not blame its peers for the time it slept.
 */
export function watchLiveness(session: Http2Session, dead: (error: Error) => void): void {
  let asked: number | undefined;
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    const slept = now - last > 2 * PING_EVERY;
    last = now;
    if (slept) asked &&= now;
    if (session.destroyed) return;
    if (asked === undefined) {
      asked = now;
      session.ping(() => {
        asked = undefined;
      });
    } else if (now - asked > SILENT_FOR) {
      dead(new Error(`no answer to PING for ${Math.round(now - asked)} ms`));
    }
  }, PING_EVERY);
  timer.unref();
  session.once('close', () => clearInterval(timer));
}
