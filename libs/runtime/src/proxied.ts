import type { BlockList, Socket } from 'node:net';
import { isIPv6, noteHeader } from './addresses.ts';
import { guarding } from './guarded.ts';
import { readProxyHeader } from './proxy-header.ts';

/** How long a load balancer may take to send the header, in milliseconds: longer than a lost packet takes to be sent again (3 s). */
const HEADER_TIMEOUT = 5_000;

/** Connections of one port that wait for their header. A load balancer sends it at once, so more are no traffic. */
const MOST_WAITING_CONNECTIONS = 4096;

/** Load balancers that say where their connections come from. */
export interface ProxiedOptions {
  /** Only connections from these networks have the header, and must have it. */
  readonly networks: BlockList;
  /** Takes a connection whose first bytes are those of its true source. */
  readonly take: (socket: Socket) => void;
  /** Called for each connection that is ended because its header does not come, or is none. */
  readonly refused: (socket: Socket, error: Error) => void;
}

/** Reads the header of the PROXY protocol ahead of everything else, TLS included. `remoteOf` then tells the true source. */
export function proxied({ networks, take, refused }: ProxiedOptions): (socket: Socket) => void {
  let waiting = 0;
  return (socket) => {
    const from = (socket.remoteAddress ?? '').replace(/^::ffff:(?=\d+\.)/i, '');
    if (!networks.check(from, isIPv6(from) ? 'ipv6' : 'ipv4')) return take(socket);
    let seen: Buffer | undefined;
    waiting++;
    const settle = () => {
      waiting--;
      clearTimeout(timer);
      socket.off('data', read).off('end', cut).off('close', settle);
    };
    const refuse = (error: Error) => {
      settle();
      refused(socket, error);
      socket.destroy();
    };
    const guarded = guarding(refuse);
    const read = guarded((chunk: Buffer) => {
      seen = seen ? Buffer.concat([seen, chunk]) : chunk;
      const header = readProxyHeader(seen);
      if (!header) return;
      settle();
      socket.pause();
      noteHeader(socket, header);
      if (seen.length > header.length) socket.unshift(seen.subarray(header.length));
      take(socket);
      // Below a TLS socket nothing reads it, and what was put back is read first.
      if (socket.listenerCount('data') > 0) socket.resume();
    });
    // A health check that connects and closes is no error.
    const cut = guarded(() => {
      if (seen) throw new Error('it ended in the middle of its header of the PROXY protocol');
      settle();
      socket.destroy();
    });
    const late = guarded(() => {
      throw new Error(`no header of the PROXY protocol within ${HEADER_TIMEOUT / 1000} s`);
    });
    const timer = setTimeout(late, HEADER_TIMEOUT);
    socket
      .on('error', () => {})
      .on('data', read)
      .on('end', cut)
      .on('close', settle);
    if (waiting > MOST_WAITING_CONNECTIONS)
      refuse(new Error(`${MOST_WAITING_CONNECTIONS} connections wait for a header of the PROXY protocol already`));
  };
}
