import type { Socket } from 'node:net';
import { Http2Session } from '@isthmus/http2';
import { SessionLost } from '@isthmus/tunnel';

/** Tunnels and pending dials on one link. */
const MAX_STREAMS = 100_000;

/** For both ends of a link: each needs the same, since each sends bulk data. Bytes, but for the streams. */
const settings = {
  // What a tunnel that nobody reads holds; the window of one that is read grows by itself.
  initialWindowSize: 64 * 1024,
  maxConcurrentStreams: MAX_STREAMS,
  // A read of a socket in one frame.
  maxFrameSize: 64 * 1024,
  // Our heads are short. What is longer is not ours.
  maxHeaderListSize: 64 * 1024,
};

/**
 * The session of one half of a link. The half that dials is the HTTP/2 client, whoever made the connection.
 * @param peer what is at the other side, for error texts
 */
export function linkSession(role: 'client' | 'server', socket: Socket, peer: string): Http2Session {
  const lost = (reason: Error) => new SessionLost(`${peer}: ${reason.message}`, { cause: reason });
  return new Http2Session({ role, socket, settings, lost });
}
