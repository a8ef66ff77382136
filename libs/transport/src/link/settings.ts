import type { Socket } from 'node:net';
import { Http2Session } from '@isthmus/http2';
import { HungUp, LinkReset, SessionLost } from '@isthmus/tunnel';
import { TENANT_FIELD } from './head.ts';

/** Tunnels and pending dials on one link. */
const MAX_STREAMS = 100_000;

/** How a socket fails whose other side has closed it, or has reset it. After a close, a reset changes nothing: reads and writes fail as before. */
const LOSSES: ReadonlyMap<string, typeof SessionLost> = new Map<string, typeof SessionLost>([
  ['EPIPE', HungUp],
  ['ECONNRESET', LinkReset],
]);

/** For both ends of a link, because both send bulk data. In bytes, except the number of streams. */
const settings = {
  // How much a tunnel that nobody reads holds. A tunnel that is read grows its window itself.
  initialWindowSize: 64 * 1024,
  maxConcurrentStreams: MAX_STREAMS,
  // One read of a socket fits into one frame.
  maxFrameSize: 64 * 1024,
  // Our heads are short, so a longer one is not ours.
  maxHeaderListSize: 64 * 1024,
};

/**
 * The session of one half of a link. The dialling half is the HTTP/2 client, whichever side made the connection.
 * @param peer what is at the other side, for error texts
 */
export function linkSession(role: 'client' | 'server', socket: Socket, peer: string): Http2Session {
  const lost = (reason: NodeJS.ErrnoException) => {
    const Lost = LOSSES.get(reason.code ?? '') ?? SessionLost;
    return new Lost(`${peer}: ${reason.message}`, { cause: reason });
  };
  return new Http2Session({ role, socket, settings, lost, groupField: TENANT_FIELD });
}
