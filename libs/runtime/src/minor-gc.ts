import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** How many bytes may be read or copied before the buffers that held them are collected. */
const EVERY = 8 * 1024 * 1024;

/** The size that the young generation may grow to, in bytes. V8 keeps twice as much for it. */
const LARGEST = 4 * 1024 * 1024;

/** Reads between two checks of its size. A check takes a microsecond. */
const LOOK_EVERY = 256;

/** After this many reads a process counts as busy. That is a thousand dials or more. */
const AT_WORK = 4096;

/** What a runtime allows to do with its young generation. */
export interface YoungGeneration {
  collect(): void;
  /** How much it holds before it is collected, in bytes. */
  capacity(): number;
  /** Sets the factor by which it grows when much of it survives. */
  growBy(factor: 1 | 2): void;
}

/**
 * Collects the young generation after every 8 MiB, and limits its size.
 *
 * To V8 a Buffer of 64 KiB is a hundred bytes of its heap. So while a fast tunnel reads gigabytes, the young generation fills slowly
 * and grows. The memory outside the heap meanwhile makes V8 collect the whole heap instead, dozens of times a second. That took half
 * of an agent's processor time. A young collection takes half a millisecond, and the memory it frees is still in the processor's
 * cache.
 *
 * A dial makes 44 KB of garbage at the server and 25 at the agent, none of it outside the heap. V8 begins with 1 MiB. Pending dials
 * are a good part of that, and each collection moves them: with 4 MiB a dial takes four fifths of the processor time.
 * A process at rest keeps what it began with.
 */
export class MinorGc {
  readonly #young: YoungGeneration;
  #bytes = 0;
  /** Reads since the last check. Starts below zero, since the first check comes only once the process is busy. */
  #reads = LOOK_EVERY - AT_WORK;
  #factor: 1 | 2 = 1;

  constructor(young: YoungGeneration = ofRuntime()) {
    this.#young = young;
  }

  /** Call this for each read of a tunnel's bytes, and for each copy of them. */
  read(bytes: number): void {
    this.#bytes += bytes;
    if (++this.#reads === LOOK_EVERY) this.#look();
    if (this.#bytes < EVERY) return;
    this.#bytes = 0;
    this.#young.collect();
  }

  /** A running V8 accepts no bound, only a growth factor. It shrinks the generation itself when little happens. */
  #look(): void {
    this.#reads = 0;
    const factor = this.#young.capacity() * 2 <= LARGEST ? 2 : 1;
    if (factor === this.#factor) return;
    this.#factor = factor;
    this.#young.growBy(factor);
  }
}

/** The instance for this process. */
export const minorGc: MinorGc = new MinorGc();

/** V8's own collector, which its flag exposes to new contexts only. A runtime without one collects as it likes. */
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
    // Not V8, or a runtime that takes no flags.
  }
  return { collect() {}, capacity: () => LARGEST, growBy() {} };
}

function capacity(): number {
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  return space ? space.space_used_size + space.space_available_size : LARGEST;
}
