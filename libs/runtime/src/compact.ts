import type { Readable } from 'node:stream';

/** A piece that is less than this part of the memory that it lies in is copied where it is kept: else it would keep all of that. */
const PINNED_PARTS = 4;

/** Whether a piece keeps much more memory than it needs: a socket's read has many frames in it, and each is a view of that. */
export function pins(piece: Uint8Array): boolean {
  return piece.length * PINNED_PARTS < piece.buffer.byteLength;
}

/** The same bytes, to be kept. */
export function compact(piece: Uint8Array): Uint8Array {
  return pins(piece) ? Buffer.from(piece) : piece;
}

/**
 * Hands a stream what came for its reader. What the reader does not take at once is kept, and then does not keep the read that it came in.
 *
 * @returns whether the reader wants more
 */
export function pushCompact(stream: Readable, piece: Uint8Array): boolean {
  const taken = stream.readableFlowing === true && stream.readableLength === 0;
  return stream.push(taken ? piece : compact(piece));
}
