import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** What may be read or copied before the buffers that held it are collected, in bytes. */
const EVERY = 8 * 1024 * 1024;

/** What the young generation may grow to, in bytes; V8 keeps twice as much for it. */
const LARGEST = 4 * 1024 * 1024;

/** Reads between two looks at how large it is: each takes a microsecond. */
const LOOK_EVERY = 256;

/** A process is at work after so many reads, those of a thousand dials and more. */
const AT_WORK = 4096;

/** What a runtime lets be done with its young generation. */
export interface YoungGeneration {
  collect(): void;
  /** What it takes before it is collected, in bytes. */
  capacity(): number;
  /** How many times as large it becomes when much of it lives on. */
  growBy(factor: 1 | 2): void;
}

/**
 * Collects the young generation after so many bytes, and bounds how large it is.
 *
 * To V8 a Buffer of 64 KiB is a hundred bytes of its heap, so while a tunnel at speed reads gigabytes, its young generation
 * fills slowly and grows; what lies outside the heap meanwhile makes V8 collect the whole heap instead, dozens of times a second. That
 * took half of an agent's processor time. A young collection takes half a millisecond, and the memory it frees is still in
 * the processor's cache.
 *
 * A dial makes 44 KB of garbage at the server and 25 at the agent, none of it outside the heap. Of the 1 MiB that V8 begins with
 * the dials under way are a good part, which each collection moves: with 4 MiB a dial takes four fifths of the processor time.
 * A process at rest keeps what it began with.
 */
export class YoungGarbage {
  readonly #young: YoungGeneration;
  #bytes = 0;
  /** Since the last look. It begins below zero, since the first look comes only once the process is at work. */
  #reads = LOOK_EVERY - AT_WORK;
  #factor: 1 | 2 = 1;

  constructor(young: YoungGeneration = ofRuntime()) {
    this.#young = young;
  }

  /** To be told of each read of a tunnel's bytes, and of each copy of them. */
  read(bytes: number): void {
    this.#bytes += bytes;
    if (++this.#reads === LOOK_EVERY) this.#look();
    if (this.#bytes < EVERY) return;
    this.#bytes = 0;
    this.#young.collect();
  }

  /** V8 takes no bound once it runs, but a factor. It makes the generation small again when little happens. */
  #look(): void {
    this.#reads = 0;
    const factor = this.#young.capacity() * 2 <= LARGEST ? 2 : 1;
    if (factor === this.#factor) return;
    this.#factor = factor;
    this.#young.growBy(factor);
  }
}

/** This process'. */
export const youngGarbage: YoungGarbage = new YoungGarbage();

/** V8's own, whose collector its flag shows to new contexts only. A runtime that has none collects as it likes. */
function ofRuntime(): YoungGeneration {
  const growBy = (factor: 1 | 2) => setFlagsFromString(`--semi-space-growth-factor=${factor}`);
  try {
    growBy(1);
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('globalThis.gc');
    setFlagsFromString('--no-expose-gc');
    capacity();
    if (typeof collect === 'function') return { collect: () => collect({ type: 'minor' }), capacity, growBy };
  } catch {
    // Not V8, or none that takes flags.
  }
  return { collect() {}, capacity: () => LARGEST, growBy() {} };
}

function capacity(): number {
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  return space ? space.space_used_size + space.space_available_size : LARGEST;
}
