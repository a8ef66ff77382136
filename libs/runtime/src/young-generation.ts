import { getHeapSpaceStatistics, getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Up to this many bytes in use, collecting the whole heap takes tens of milliseconds. A larger one is left to V8. */
const SMALL_HEAP = 96 * 1024 * 1024;

/** What a runtime allows to do with its memory, above all with its young generation. */
export interface YoungGeneration {
  collect(): void;
  /** Collects the whole heap, if that does not take long. */
  collectAll(): void;
  /** How much it holds before it is collected, in bytes. */
  capacity(): number;
  /** How much lies outside the heap, in buffers, in bytes. */
  outside(): number;
  /** Sets the factor by which it grows when much of it survives. */
  growBy(factor: 1 | 2): void;
  /** How much of the whole heap is in use, in bytes. */
  used(): number;
  /** Sets by how much the whole heap may grow until it is collected, in percent; 0: the runtime chooses. */
  growHeapBy(percent: number): void;
}

/** V8's own collector, which its flag exposes to new contexts only. A runtime without one collects as it likes. */
export function ofRuntime(): YoungGeneration {
  const growBy = (factor: 1 | 2) => setFlagsFromString(`--semi-space-growth-factor=${factor}`);
  const growHeapBy = (percent: number) => setFlagsFromString(`--heap-growing-percent=${percent}`);
  try {
    growBy(1);
    growHeapBy(0);
    setFlagsFromString('--expose-gc');
    const collect: unknown = runInNewContext('globalThis.gc');
    setFlagsFromString('--no-expose-gc');
    capacity();
    if (typeof collect === 'function') {
      const used = () => getHeapStatistics().used_heap_size;
      const collectAll = () => {
        if (used() <= SMALL_HEAP) collect();
      };
      const outside = () => getHeapStatistics().external_memory;
      return { collect: () => collect({ type: 'minor' }), collectAll, capacity, outside, growBy, used, growHeapBy };
    }
  } catch {
    // Not V8, or a runtime that takes no flags.
  }
  const nothing = { collect() {}, collectAll() {}, growBy() {}, growHeapBy() {} };
  return {
    ...nothing,
    capacity: () => Number.POSITIVE_INFINITY,
    outside: () => 0,
    used: () => Number.POSITIVE_INFINITY,
  };
}

function capacity(): number {
  const space = getHeapSpaceStatistics().find(({ space_name }) => space_name === 'new_space');
  return space ? space.space_used_size + space.space_available_size : Number.POSITIVE_INFINITY;
}
