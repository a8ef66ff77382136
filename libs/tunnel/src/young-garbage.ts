import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** What may be read or copied before the buffers that held it are collected, in bytes. */
const EVERY = 8 * 1024 * 1024;

type Collect = (options: { type: 'minor' }) => void;

/**
 * Collects the young generation after so many bytes.
 *
 * To V8 a Buffer of 64 KiB is a hundred bytes of its heap, so while a tunnel at speed reads gigabytes, its young generation
 * fills slowly and grows; what lies outside the heap meanwhile makes V8 collect the whole heap instead, dozens of times a second. That
 * took half of an agent's processor time. A young collection takes half a millisecond, and the memory it frees is still in
 * the processor's cache.
 */
export class YoungGarbage {
  readonly #collect: Collect;
  #bytes = 0;

  constructor(collect: Collect = collector()) {
    this.#collect = collect;
  }

  /** To be told of each read of a tunnel's bytes, and of each copy of them. */
  read(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes < EVERY) return;
    this.#bytes = 0;
    this.#collect({ type: 'minor' });
  }
}

/** This process'. */
export const youngGarbage: YoungGarbage = new YoungGarbage();

/** V8's own function, which its flag shows to new contexts only. A runtime that has none collects as it likes. */
function collector(): Collect {
  try {
    setFlagsFromString('--semi-space-growth-factor=1');
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('globalThis.gc');
    setFlagsFromString('--no-expose-gc');
    if (typeof collect === 'function') return collect as Collect;
  } catch {
    // Not V8, or none that takes flags.
  }
  return () => {};
}
