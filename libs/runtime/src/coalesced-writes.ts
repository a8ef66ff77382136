import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';

/** A chunk of at least this many bytes is part of a byte stream rather than a message that someone waits for. */
const BULK_CHUNK = 4096;

/** The most bytes to gather, or to leave in a socket before its writer is asked to pause: the size of one socket read. */
const GATHERED_BYTES = 64 * 1024;

/** Sockets that hold back what was written in this turn of the event loop. */
let holding: Socket[] = [];

/**
 * Writes to a socket. Bulk chunks of one event loop turn leave in one write.
 *
 * TLS delivers records of 16 KiB, several at a time. A write for each is a system call and wakes the reader, which then also reads
 * them one by one: a third of an agent's time for an upload, and half of its destination's. Short chunks leave at once.
 *
 * @returns whether the socket accepts more; if not, it will emit `drain`
 */
export function writeCoalesced(socket: Socket, chunk: Uint8Array): boolean {
  if (chunk.length >= BULK_CHUNK && socket.writableCorked === 0) hold(socket);
  socket.write(chunk);
  if (socket.writableLength >= GATHERED_BYTES) socket.uncork();
  return !socket.writableNeedDrain || socket.writableLength < GATHERED_BYTES;
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

/** Returns how to write to a stream: like `writeCoalesced` to a socket, directly to any other. */
export function writerOf(stream: Duplex): (chunk: Uint8Array) => boolean {
  return stream instanceof Socket ? (chunk) => writeCoalesced(stream, chunk) : (chunk) => stream.write(chunk);
}

/**
 * Ends a stream whose peer has ended too. A plain socket that has sent everything is closed at once: the kernel sends the same FIN
 * without a shutdown before it. TLS is different: it announces its end itself.
 */
export function endAfterPeer(stream: Duplex): void {
  const plain = stream instanceof Socket && !(stream instanceof TLSSocket);
  if (plain && stream.writableLength === 0) stream.destroy();
  else stream.end();
}
