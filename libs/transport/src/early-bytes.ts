import type { Socket } from 'node:net';

/** What a caller may send ahead of the answer before it is left waiting in the kernel, in bytes. */
const MAX_EARLY = 64 * 1024;

/**
 * Reads a caller's socket while its dial is pending, since a socket that nobody reads does not tell that its peer has gone.
 * What comes early is kept.
 * @returns stops reading and puts back what came
 */
export function watchCaller(socket: Socket, gone: () => void): () => void {
  const early: Buffer[] = [];
  let length = 0;
  const read = () => {
    const chunk = socket.read() as Buffer | null;
    if (!chunk) return;
    early.push(chunk);
    length += chunk.length;
    if (length >= MAX_EARLY) socket.off('readable', read);
  };
  socket.on('readable', read).once('end', gone).once('close', gone);
  return () => {
    socket.off('readable', read).off('end', gone).off('close', gone);
    if (length > 0 && !socket.destroyed) socket.unshift(Buffer.concat(early));
  };
}
