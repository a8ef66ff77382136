import type { Socket } from 'node:net';

/** `host:port` of the other side, or `uds`. */
export function remoteOf(socket: Socket): string {
  return socket.remoteAddress ? `${socket.remoteAddress}:${socket.remotePort}` : 'uds';
}
