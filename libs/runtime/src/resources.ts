import { closeSync, existsSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from './async.ts';
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

  constructor(source: DescriptorSource = descriptorsOfSystem) {
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
const descriptorsOfSystem: DescriptorSource = {
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
  now: systemClock.now,
};

function noneLeft(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'EMFILE' || code === 'ENFILE';
}

/** The descriptors of this process. */
export const descriptors = new Descriptors();

/**
 * How much this process may use, in bytes: the limit of its control group. 0 if nothing limits it.
 * @param told by Node: 2^64 if the group has no limit
 */
export function memoryLimit(told = process.constrainedMemory?.() ?? 0): number {
  return told < Number.MAX_SAFE_INTEGER ? told : 0;
}

/** What a limit leaves for tunnels beside the program, in bytes. */
function spareOf(limit: number): number {
  return limit > 0 ? Math.max(0, limit - RUNTIME.programBytes) : Number.POSITIVE_INFINITY;
}

/** What all tunnels of a process may hold together for one purpose: so many bytes, or less where memory is limited. */
export function poolBytes(usual: number, part: number = RUNTIME.poolPart, limit = memoryLimit()): number {
  return Math.min(usual, spareOf(limit) * part);
}

/** What a tunnel holds at each place in a process with this limit, in bytes. */
export function bufferSizesFor(limit: number) {
  const each = Math.max(RUNTIME.leastBufferBytes, Math.floor(spareOf(limit) / RUNTIME.buffers));
  return {
    stream: Math.min(RUNTIME.streamBytes, each),
    ahead: Math.min(RUNTIME.aheadBytes, each),
    kept: Math.min(RUNTIME.keptBaseBytes, each),
    window: Math.min(RUNTIME.windowBytes, each),
  };
}

/** The same for this process. */
export const bufferSizes = bufferSizesFor(memoryLimit());

/** What the system reports about the memory of this process. */
export interface MemorySource {
  /** In bytes; 0 for none. */
  readonly limit: number;
  /** What counts against the limit and cannot be dropped, in bytes. */
  used(): number;
  now(): number;
  /** Frees what died young. */
  collect(): void;
}

/** How much memory this process has left of its limit. Without one, nothing here costs anything. */
export class Memory {
  readonly #source: MemorySource;
  readonly #garbage: number;
  #unread: number;
  #scarce = false;
  #lookAt = Number.NEGATIVE_INFINITY;

  constructor(source: MemorySource = memoryOfSystem) {
    this.#source = source;
    const garbage = poolBytes(RUNTIME.garbageBytes, RUNTIME.garbagePart, source.limit);
    // V8 itself lets no more pile up.
    this.#garbage = garbage < RUNTIME.garbageBytes ? garbage : Number.POSITIVE_INFINITY;
    this.#unread = this.#garbage;
  }

  /** Whether anything limits it. */
  get limited(): boolean {
    return this.#source.limit > 0;
  }

  /** Whether only the reserve is left. */
  get scarce(): boolean {
    const { limit } = this.#source;
    if (limit === 0) return false;
    const now = this.#source.now();
    if (now < this.#lookAt) return this.#scarce;
    this.#scarce = this.#source.used() > limit * (1 - RUNTIME.memoryReservePart);
    const after = this.#source.now();
    this.#lookAt = after + Math.max(RUNTIME.memoryLookMs, RUNTIME.memoryLookTimes * (after - now));
    return this.#scarce;
  }

  /** Counts bytes that were read or copied into new buffers. V8 frees those that died young only when it has 32 MiB: it counts little but objects. */
  filled(bytes: number): void {
    this.#unread -= bytes;
    if (this.#unread > 0) return;
    this.#unread = this.#garbage;
    this.#source.collect();
  }
}

/** The control group's files that say what is used, and what of that is only a copy of files. */
interface GroupFiles {
  readonly used: string;
  readonly stat: string;
  readonly copies: RegExp;
}

/** Finds them where the group's path is seen from, or as a container sees its own. Undefined if there are none. */
function groupFiles(): GroupFiles | undefined {
  const [, v1] = /^\d+:[^:]*\bmemory\b[^:]*:(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'latin1')) ?? [];
  const [, v2 = ''] = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'latin1')) ?? [];
  const [root, path, used, copies] =
    v1 === undefined
      ? (['/sys/fs/cgroup', v2, 'memory.current', /^(?:in)?active_file (\d+)$/gm] as const)
      : (['/sys/fs/cgroup/memory', v1, 'memory.usage_in_bytes', /^total_(?:in)?active_file (\d+)$/gm] as const);
  const dir = [`${root}${path}`, root].find((each) => existsSync(`${each}/${used}`));
  return dir === undefined ? undefined : { used: `${dir}/${used}`, stat: `${dir}/memory.stat`, copies };
}

let files: GroupFiles | undefined;
let collectYoung: ((options: { type: 'minor' }) => void) | undefined;

const memoryOfSystem: MemorySource = {
  limit: memoryLimit(),
  used() {
    try {
      files ??= groupFiles();
      if (!files) return 0;
      const copies = readFileSync(files.stat, 'latin1').matchAll(files.copies);
      const dropped = [...copies].reduce((sum, [, bytes]) => sum + Number(bytes), 0);
      return Number(readFileSync(files.used, 'latin1')) - dropped;
    } catch {
      return 0;
    }
  },
  now: systemClock.now,
  collect() {
    // Node has no other way to ask for it.
    if (!collectYoung) setFlagsFromString('--expose-gc');
    collectYoung ??= runInNewContext('gc') as NonNullable<typeof collectYoung>;
    collectYoung({ type: 'minor' });
  },
};

/** The memory of this process. */
export const memory = new Memory();
