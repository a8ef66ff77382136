import { isTiny, memoryLimit } from './memory.ts';
import { ofRuntime, type YoungGeneration } from './young-generation.ts';

/** How many bytes may be read or copied between two young collections, at most and at least. */
const [MOST_BETWEEN, LEAST_BETWEEN] = [8 * 1024 * 1024, 1024 * 1024];

/** The same, as a part of the memory that the process may use: 8 MiB of 256 MiB, 1 MiB of 32. */
const BETWEEN_PART = 1 / 32;

/**
 * Where memory is tiny, a process also collects buffers that have grown old, once they are this part of it. Those that survive two young
 * collections are old, and V8 leaves old ones for 64 MiB.
 */
const OLD_PART = 1 / 16;

/** The size that the young generation may grow to, in bytes. V8 keeps twice as much for it. */
const LARGEST_YOUNG = 4 * 1024 * 1024;

/**
 * How many bytes of new buffers a busy process has room for before V8 collects the whole heap. A larger heap, or one where memory is small,
 * has as much as V8 gives it.
 */
const ROOM = 32 * 1024 * 1024;

/** Reads between two checks of its size. A check takes a microsecond. */
const READS_A_CHECK = 256;

/** After this many reads a process counts as busy. That is five hundred dials, or 64 MB. */
const READS_AT_WORK = 1024;

/** A process that has been busy is at rest once this much time has passed since its last 256 reads, in milliseconds. */
const REST_MS = 2_000;

/** A process whose buffers took this much has much to give back at rest: hundreds of its tunnels moved bytes at once. */
const MUCH_OUTSIDE = 48 * 1024 * 1024;

/** Any other waits this long for its next collection of the whole heap, in milliseconds: see `MinorGc`. */
const SELDOM_MS = 600_000;

/** Where no more memory than this is allowed, in bytes, it is worth more than processor time: there is no such wait. */
const SMALL_MEMORY = 256 * 1024 * 1024;

/** Collections of the whole heap at rest: the first leaves a third of the memory to those objects that it finalizes. */
const COLLECTIONS_AT_REST = 2;

/**
 * Collects the young generation after every 8 MiB, or sooner where memory is small, and limits its size.
 *
 * To V8 a Buffer of 64 KiB is a hundred bytes of its heap. So while a fast tunnel reads gigabytes, the young generation fills slowly
 * and grows. The memory outside the heap meanwhile makes V8 collect the whole heap instead, dozens of times a second. That took half
 * of an agent's processor time. A young collection takes half a millisecond, and the memory it frees is still in the processor's
 * cache.
 *
 * V8 adds the bytes of all new buffers to the size of its heap, and starts to collect the whole heap once it has grown by a factor that V8
 * chooses, or by 8 MiB. So a heap of 10 MB had no room for the 8 MiB and the buffers that wait for their turn, or for the tunnel's other
 * end to have them: it was collected after every 10 to 15 MiB. A heap of up to 32 MiB may now grow by up to that.
 *
 * A dial makes 44 KB of garbage at the server and 25 at the agent, none of it outside the heap. V8 begins with 1 MiB. Pending dials
 * are a good part of that, and each collection moves them: with 4 MiB a dial takes four fifths of the processor time.
 * A process at rest keeps what it began with.
 *
 * When the work is over, V8 waits for more garbage before it collects again, and none is made. So the process then collects its whole heap,
 * twice. After 500 busy tunnels were cut, that gives back 25 to 40 MB of a server and its agent.
 *
 * But such a collection finds no tunnel alive, so V8 throws away the machine code of more than a hundred functions that knew what a tunnel
 * looks like. The next two thousand dials then take twice the processor time, while V8 compiles them again. So it is worth that
 * only after hundreds of tunnels were busy at once, or seldom.
 */
export class MinorGc {
  readonly #young: YoungGeneration;
  readonly #every: number;
  readonly #seldomMs: number;
  readonly #room: number;
  /** How much more than `#kept` may be outside the heap; infinite if nothing limits it much. */
  readonly #old: number;
  /** What was outside the heap after the last collection of all of it. */
  #kept = Number.POSITIVE_INFINITY;
  #bytes = 0;
  /** Reads since the last check. Starts below zero, since the first check comes only once the process is busy. */
  #reads = READS_A_CHECK - READS_AT_WORK;
  #factor: 1 | 2 = 1;
  #percent = 0;
  /** Reads since the last rest, as of the last check. The first check adds its own 256 to those before it. */
  #work = READS_AT_WORK - READS_A_CHECK;
  /** Collections that are due at the next rest. */
  #due = 0;
  #rest: NodeJS.Timeout | undefined;
  /** Whether its buffers took much since the last rest. */
  #much = false;
  /** When the whole heap was collected last, or the process began. */
  #collectedAt: number;
  readonly #now: () => number;

  /** @param memory how much this process may use, in bytes; 0 if nothing limits it */
  constructor(young: YoungGeneration = ofRuntime(), memory = memoryLimit(), now = () => performance.now()) {
    this.#young = young;
    this.#now = now;
    this.#collectedAt = now();
    const isSmall = memory > 0 && memory <= SMALL_MEMORY;
    this.#seldomMs = isSmall ? 0 : SELDOM_MS;
    this.#room = isSmall ? 0 : ROOM;
    this.#every = memory > 0 ? Math.min(MOST_BETWEEN, Math.max(LEAST_BETWEEN, memory * BETWEEN_PART)) : MOST_BETWEEN;
    this.#old = isTiny(memory) ? memory * OLD_PART : Number.POSITIVE_INFINITY;
  }

  /** Counts a read of a tunnel's bytes, or a copy of them, and collects if it is time. */
  countRead(bytes: number): void {
    this.#bytes += bytes;
    if (++this.#reads === READS_A_CHECK) this.#check();
    if (this.#bytes < this.#every) return;
    this.#bytes = 0;
    this.#young.collect();
    if (this.#old < Number.POSITIVE_INFINITY) this.#collectOld();
  }

  #collectOld(): void {
    const outside = this.#young.outside();
    this.#kept = Math.min(this.#kept, outside);
    if (outside < this.#kept + this.#old) return;
    this.#young.collectAll();
    this.#kept = this.#young.outside();
  }

  /** A running V8 accepts no bound, only a growth factor. It shrinks the generation itself when little happens. */
  #check(): void {
    this.#reads = 0;
    this.#work += READS_A_CHECK;
    this.#much ||= this.#young.outside() >= MUCH_OUTSIDE;
    if (this.#work >= READS_AT_WORK) this.#untilRest(COLLECTIONS_AT_REST);
    this.#makeRoom();
    const factor = this.#young.capacity() * 2 <= LARGEST_YOUNG ? 2 : 1;
    if (factor === this.#factor) return;
    this.#factor = factor;
    this.#young.growBy(factor);
  }

  /** A running V8 accepts no number of bytes, only a percentage, which counts from its next collection of the whole heap. */
  #makeRoom(): void {
    this.#growHeapBy(100 * Math.floor(this.#room / this.#young.used()));
  }

  #growHeapBy(percent: number): void {
    if (percent === this.#percent) return;
    this.#percent = percent;
    this.#young.growHeapBy(percent);
  }

  #untilRest(due: number, ms = REST_MS): void {
    clearTimeout(this.#rest);
    this.#due = due;
    if (due > 0) this.#rest = setTimeout(() => this.#atRest(), ms).unref();
  }

  #atRest(): void {
    const now = this.#now();
    const early = this.#collectedAt + this.#seldomMs - now;
    if (early > 0 && !this.#much && this.#due === COLLECTIONS_AT_REST) {
      this.#untilRest(COLLECTIONS_AT_REST, early);
      return;
    }
    this.#collectedAt = now;
    this.#work = 0;
    this.#much = false;
    this.#young.collectAll();
    this.#untilRest(this.#due - 1);
    if (this.#due === 0) this.#growHeapBy(0);
  }
}

/** The instance for this process. */
export const minorGc: MinorGc = new MinorGc();
