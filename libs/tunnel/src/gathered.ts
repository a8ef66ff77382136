import type { Socket } from 'node:net';

/** A chunk from this length on is part of a stream of bytes rather than a message that someone waits for, in bytes. */
const BULK = 4096;

/** What is gathered at most, and what may wait in a socket before its writer is asked to rest, in bytes: a read of a socket. */
const ENOUGH = 64 * 1024;

/** Sockets that hold what was written in this turn of the event loop. */
let holding: Socket[] = [];

/**
 * Writes to a socket; what comes in bulk within one turn of the event loop leaves in one write.
 *
 * TLS brings what was sent in records of 16 KiB, several at a time. A write for each is a system call and wakes the reader, which
 * then reads them one by one too: a third of an agent's time for an upload, and half of its destination's. Short chunks leave at once.
 *
 * @returns whether the socket takes more; if not, it will emit `drain`
 */
export function writeGathered(socket: Socket, chunk: Uint8Array): boolean {
  if (chunk.length >= BULK && socket.writableCorked === 0) hold(socket);
  socket.write(chunk);
  if (socket.writableLength >= ENOUGH) socket.uncork();
  return !socket.writableNeedDrain || socket.writableLength < ENOUGH;
}

function hold(socket: Socket): void {
  socket.cork();
  if (holding.push(socket) === 1) setImmediate(release);
}

function release(): void {
  const held = holding;
  holding = [];
  for (const socket of held) socket.uncork();
}
