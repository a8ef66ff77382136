import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { TunnelEnd } from '@isthmus/tunnel';
import { belowOf } from '../tls/below.ts';

/**
 * How long a peer has to get what was written before its connection is reset, in milliseconds. A reset discards what it has not got, and
 * the runtime does not say how much that is.
 */
const DELIVERY_MS = 500;

/** Whether a reset right behind bytes is read as an end: libuv before 1.52 does not read again after it (its pull request 4997). */
const HIDES_RESETS = Number(process.versions.uv?.split('.')[1]) < 52;

/**
 * The end of a tunnel at a socket: a caller's, or a destination's. A cut resets the connection, so that no peer takes half an answer for
 * a whole one. Over TLS, that is the connection below, without a close_notify. A unix socket has no reset: its peer sees an end, and
 * ECONNRESET only if it had sent bytes that nobody has read.
 */
export function socketEnd(socket: Socket): TunnelEnd {
  // A unix socket has no reset.
  if (HIDES_RESETS && below(socket) !== undefined)
    socket.prependListener('end', () => {
      if (wasReset(socket)) socket.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }));
    });
  return {
    stream: socket,
    halfOpen: true,
    abort: () => reset(socket),
    delivered(then, silentMs) {
      const ms = DELIVERY_MS - silentMs;
      if (ms > 0 && below(socket)) setTimeout(then, ms).unref();
      else then();
    },
  };
}

/** Whether the kernel has no peer for a connection of which only the other side has ended. It has one after a FIN. */
function wasReset(socket: Socket): boolean {
  const handle: { getpeername?: (into: object) => number } | null = Reflect.get(socket, '_handle');
  return !socket.writableEnded && (handle?.getpeername?.({}) ?? 0) !== 0;
}

function reset(socket: Socket): void {
  // Node cannot reset a socket whose end is on its way. All its bytes have left by then.
  const ending = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (!ending) below(socket)?.resetAndDestroy();
  socket.destroy();
}

/** Returns the TCP connection; undefined for a unix socket, or after the end. */
function below(socket: Socket): Socket | undefined {
  const connection = socket instanceof TLSSocket ? belowOf(socket) : socket;
  return connection?.remotePort === undefined ? undefined : connection;
}
