import type { Readable } from 'node:stream';

/** Destroys a stream as soon as its reader has what was received. Call it once nothing more is received. */
export function destroyOnceRead(stream: Readable, error?: Error): void {
  const look = () => {
    // The last piece is out of the stream before its reader has it.
    if (stream.readableLength === 0) process.nextTick(() => stream.destroy(error));
  };
  if (stream.readableLength === 0) stream.destroy(error);
  // A listener for data would start a stream that nobody reads yet.
  else if (stream.readableFlowing === null) stream.once('resume', () => stream.on('data', look));
  else stream.on('data', look);
}
