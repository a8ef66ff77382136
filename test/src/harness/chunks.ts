import { once } from 'node:events';
import type { Readable } from 'node:stream';
import { within } from '@isthmus/runtime/testing';

/** A stream that ends has no more `readable`, and one that is destroyed has no `end`. */
const CHANGES = ['readable', 'end', 'close'];

/**
 * Returns what has come of a stream, and leaves the stream standing: what comes next waits in it. Between two
 * `once(stream, 'data')` a chunk is lost that comes in the same turn as the one before.
 * @param what is waited for, for the text of the error
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
