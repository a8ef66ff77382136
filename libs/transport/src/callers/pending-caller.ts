import type { Socket } from 'node:net';

/** How much a caller may send before the answer, in bytes. The rest waits in the kernel. */
const MAX_EARLY = 64 * 1024;

export interface PendingCaller {
  /** Stops reading. */
  stop(): void;
  /** Stops reading and puts back what arrived. The socket is then paused until it is resumed. */
  putBack(): void;
}

/**
 * Reads a caller's socket while its dial is pending, because a socket that nobody reads does not report that its peer has gone. What
 * arrives early is kept.
 * @param first what has arrived already
 */
export function watchCaller(socket: Socket, first: Buffer, gone: () => void): PendingCaller {
  const early: Buffer[] = [];
  let length = 0;
  const read = (chunk: Buffer) => {
    early.push(chunk);
    length += chunk.length;
    if (length >= MAX_EARLY) socket.pause();
  };
  const stop = () => void socket.off('data', read).off('end', gone).off('close', gone);
  if (first.length > 0) read(first);
  socket.on('data', read).on('end', gone).on('close', gone);
  return {
    stop,
    putBack() {
      stop();
      if (length === 0 || socket.destroyed) return;
      socket.pause();
      socket.unshift(Buffer.concat(early));
    },
  };
}
