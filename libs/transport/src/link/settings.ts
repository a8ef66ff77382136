import type { Socket } from 'node:net';
import { HungUp, LinkReset, SessionLost } from '@isthmus/tunnel';
import { Http2Session } from '@isthmus/wire';
import { TENANT_FIELD } from './head.ts';

/**
 * The session of one half of a link. The dialling half is the HTTP/2 client, whichever side made the connection.
 * @param peer what is at the other side, for error texts
 * @param mayHaveDied see `watchLiveness`
 */
export function linkSession(
  role: 'client' | 'server',
  socket: Socket,
  peer: string,
  mayHaveDied: () => boolean = () => true,
): Http2Session {
  const lost = (reason: NodeJS.ErrnoException) => {
    const Lost = lossOf(reason.code, mayHaveDied);
    return new Lost(`${peer}: ${reason.message}`, { cause: reason });
  };
  return new Http2Session({ role, socket, lost, groupField: TENANT_FIELD });
}

/**
 * When a process dies, its kernel closes its connections, and resets those with bytes that the process has not read. So if we have sent
 * nothing lately, a reset comes from something on the way. If we have heard nothing for long, neither side heard the other, and the other
 * process, which lives, has closed the connection for that: what we sent meanwhile then drew the reset, which dropped its reason.
 */
function lossOf(code: string | undefined, mayHaveDied: () => boolean): typeof SessionLost {
  if (code === 'EPIPE') return HungUp;
  if (code === 'ECONNRESET') return mayHaveDied() ? HungUp : LinkReset;
  return SessionLost;
}
