const MIB = 1024 * 1024;

/** Up to this limit, in bytes, memory is worth more than anything else: upstream's manifests give an agent 30 MiB, and Node takes 20. */
const TINY_MEMORY = 64 * MIB;

/** How much this process may use, in bytes: the limit of its control group. 0 if nothing limits it. */
export function memoryLimit(): number {
  return process.constrainedMemory?.() ?? 0;
}

/** Whether a limit in bytes is so low that buffers are kept short. */
export function isTiny(limit: number): boolean {
  return limit > 0 && limit <= TINY_MEMORY;
}

/** What a tunnel buffers, in bytes. */
export interface BufferSizes {
  /**
   * What a stream buffers before it pauses its source. Measured: 64 KiB carries 25 to 30 % more bytes per second than Node 20's 16 KiB. More
   * costs latency under load. Newer Nodes have this value as their default.
   */
  readonly stream: number;
  /** What may wait to be sent before the writer has to pause: two reads of a socket, or half of one. */
  readonly ahead: number;
  /** What each end may always keep until the other end has it: enough for paths within a site. */
  readonly kept: number;
}

const KIB = 1024;
const USUAL: BufferSizes = { stream: 64 * KIB, ahead: 128 * KIB, kept: 256 * KIB };
/** Measured with 8 downloads at once in 30 MiB: with the usual sizes, the agent was killed within seconds. */
const SHORT: BufferSizes = { stream: 16 * KIB, ahead: 32 * KIB, kept: 64 * KIB };

export function bufferSizesFor(limit: number): BufferSizes {
  return isTiny(limit) ? SHORT : USUAL;
}

/** Those of this process. */
export const bufferSizes: BufferSizes = bufferSizesFor(memoryLimit());
