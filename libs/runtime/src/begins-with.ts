import type { Socket } from 'node:net';

/**
 * Reads just enough of a flowing socket to tell whether it begins with `prefix`, and calls `decided` once, with all bytes read so far.
 * Returns a function that stops reading.
 */
export function beginsWith(
  socket: Socket,
  prefix: Buffer,
  decided: (matches: boolean, first: Buffer) => void,
): () => void {
  let seen: Buffer | undefined;
  const stop = () => void socket.off('data', read);
  const read = (chunk: Buffer) => {
    seen = seen ? Buffer.concat([seen, chunk]) : chunk;
    const length = Math.min(seen.length, prefix.length);
    const matches = seen.compare(prefix, 0, length, 0, length) === 0;
    if (matches && length < prefix.length) return;
    stop();
    decided(matches, seen);
  };
  socket.on('data', read);
  return stop;
}

/** Puts bytes that were read back in front of a socket, and pauses it until something reads it. */
export function putBack(socket: Socket, first: Buffer): void {
  socket.pause();
  socket.unshift(first);
}
