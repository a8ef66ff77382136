import type { Sink } from './sending.ts';

export type Done = (error?: Error | null) => void;

/** The write of a stream that is under way: its chunks leave in frames, as the windows allow, and then its writer is told. */
export class Outgoing {
  #chunks: Buffer[] = [];
  /** Of the first chunk, what has been sent. */
  #offset = 0;
  #left = 0;
  #length = 0;
  #written: Done | undefined;

  /** What is still to be sent, in bytes. */
  get left(): number {
    return this.#left;
  }

  /** Of the whole write, in bytes. */
  get length(): number {
    return this.#length;
  }

  /** @param written called by `release`, or here for a write of no bytes */
  begin(chunks: Buffer[], written: Done): void {
    this.#chunks = chunks;
    this.#length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    this.#left = this.#length;
    if (this.#left === 0) written();
    else this.#written = written;
  }

  /** Sends so many of its bytes. */
  send(sink: Sink, length: number): void {
    this.#left -= length;
    for (let left = length; left > 0; ) left -= this.#sendPart(sink, left);
  }

  /** Tells the writer, if it waits. */
  release(error?: Error): void {
    const written = this.#written;
    this.#written = undefined;
    written?.(error);
  }

  /** Nothing more is sent. */
  drop(): void {
    this.#chunks = [];
    this.#left = 0;
  }

  #sendPart(sink: Sink, limit: number): number {
    const chunk = this.#chunks[0] as Buffer;
    const part = chunk.subarray(this.#offset, this.#offset + limit);
    sink.write(part);
    this.#offset += part.length;
    if (this.#offset === chunk.length) {
      this.#chunks.shift();
      this.#offset = 0;
    }
    return part.length;
  }
}
