import { closeSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { RUNTIME } from './defaults.ts';

/** What the system reports about this process; undefined if it reports nothing. */
export interface DescriptorSource {
  count(): { readonly open: number; readonly limit: number } | undefined;
  canOpen(): boolean;
  now(): number;
}

/** How many file descriptors this process has left: counted by the system now and then, estimated in between. */
export class Descriptors {
  readonly #source: DescriptorSource;
  #left = Number.POSITIVE_INFINITY;
  #limit = Number.POSITIVE_INFINITY;
  #reserve = 0;
  #countsLater: NodeJS.Timeout | undefined;
  #countedAt = Number.NEGATIVE_INFINITY;
  #countTook = 0;

  constructor(source: DescriptorSource = system) {
    this.#source = source;
  }

  /** Reports one opened descriptor. It counts as open until the next count. */
  opened(): void {
    this.#left--;
  }

  /** How many are left besides the reserve. */
  get left(): number {
    return this.#count() - this.#reserve;
  }

  /** Whether only the reserve is left. */
  get scarce(): boolean {
    return this.#count() < this.#reserve;
  }

  /** Whether too little is left even to answer each refused caller. */
  get spent(): boolean {
    return this.#count() < this.#reserve / RUNTIME.lastDescriptorsPart;
  }

  /** Whether no descriptor can be opened at the moment. */
  get exhausted(): boolean {
    return !this.#source.canOpen();
  }

  #count(): number {
    const now = this.#source.now();
    const [ms, times] =
      this.#left < this.#reserve
        ? [RUNTIME.scarceDescriptorsMs, RUNTIME.scarceDescriptorsTimes]
        : [RUNTIME.descriptorsMs, RUNTIME.descriptorsTimes];
    if (now - this.#countedAt < Math.max(ms, times * this.#countTook)) return this.#left;
    // Counting takes a tenth of an idle process's dial, which need not wait for it while there are plenty.
    if (this.#left > this.#limit / 2)
      this.#countsLater ??= setTimeout(() => this.#countNow(), RUNTIME.descriptorsLookMs).unref();
    else this.#countNow();
    return this.#left;
  }

  #countNow(): void {
    const now = this.#source.now();
    const { open, limit } = this.#source.count() ?? { open: 0, limit: Number.POSITIVE_INFINITY };
    clearTimeout(this.#countsLater);
    this.#countsLater = undefined;
    this.#countedAt = this.#source.now();
    this.#countTook = this.#countedAt - now;
    this.#left = limit - open;
    this.#limit = limit;
    this.#reserve = Math.min(RUNTIME.reservedDescriptors, limit / RUNTIME.reservedDescriptorsPart);
  }
}

/** Reads /proc on Linux, which offers no cheaper way. Elsewhere the limit is unknown. */
const system: DescriptorSource = {
  count() {
    try {
      // Reading the directory opens a descriptor of its own.
      const open = readdirSync('/proc/self/fd').length - 1;
      const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1')) ?? [];
      return { open, limit: soft === undefined ? Number.POSITIVE_INFINITY : Number(soft) };
    } catch (error) {
      return noneLeft(error) ? { open: RUNTIME.reservedDescriptors, limit: RUNTIME.reservedDescriptors } : undefined;
    }
  },
  canOpen() {
    try {
      closeSync(openSync('/dev/null', 'r'));
      return true;
    } catch (error) {
      return !noneLeft(error);
    }
  },
  now: () => performance.now(),
};

function noneLeft(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EMFILE' || code === 'ENFILE';
}

/** The descriptors of this process. */
export const descriptors = new Descriptors();
