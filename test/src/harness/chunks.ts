import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { within } from '@isthmus/runtime/testing';

/** A stream that ends emits no more `readable`, and one that is destroyed emits no `end`. */
const CHANGES = ['readable', 'end', 'close'];

/**
 * Returns the next bytes of a stream and leaves the stream paused: later bytes wait in it. With two calls of `once(stream, 'data')`, a
 * chunk that arrives in the same turn as the one before is lost.
 * @param what what is awaited, for the text of the error
 */
export async function nextChunk(stream: Readable, what: string): Promise<Buffer> {
  for (;;) {
    const chunk = stream.read() as Buffer | null;
    if (chunk !== null) return chunk;
    if (stream.readableEnded || stream.destroyed) throw new Error(`the stream ended before ${what}`);
    const settled = new AbortController();
    const change = Promise.race(CHANGES.map((event) => once(stream, event, settled)));
    await within(change, { what }).finally(() => settled.abort());
  }
}
