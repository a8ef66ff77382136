import { constants, type Http2Session, type Http2Stream } from 'node:http2';

/**
 * Ends a session and the streams on it. A stream that both sides have ended already is left to its reader: all of it has
 * come, and a slow one has yet to take it. The session goes when the last of these has been read.
 */
export function endSession(session: Http2Session, streams: Iterable<Http2Stream>, reason: Error): void {
  let left = 1;
  const over = () => {
    // Not from within a callback of the session: that ends Deno now and then.
    if (--left === 0 && !session.destroyed) setImmediate(() => session.destroy());
  };
  for (const stream of streams) {
    if (isWhole(stream)) {
      left++;
      stream.once('close', over);
    } else {
      stream.destroy(reason);
    }
  }
  if (left > 1 && !session.closed) session.close();
  over();
}

function isWhole(stream: Http2Stream): boolean {
  return stream.closed && !stream.destroyed && stream.rstCode === constants.NGHTTP2_NO_ERROR;
}
