import { bufferSizes, type Clock, type SharedBudget } from '@isthmus/runtime';
import type { Keeping } from './allowance.ts';
import { Sweep } from './sweep.ts';

export interface ResumeOptions {
  /** How long a detached tunnel waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** The process's memory for tunnels whose other end acknowledges late. */
  readonly budget: SharedBudget;
}

/**
 * The most that one tunnel may keep, in bytes: what is under way at 160 MB/s with a round-trip time of 100 ms, and as much again for
 * acknowledgements that come late.
 */
const KEPT_MOST = 32 * 1024 * 1024;

/**
 * Taken bytes are acknowledged within this time, in milliseconds. They are acknowledged sooner if they are many, with a WINDOW_UPDATE,
 * because the mark then needs no write of its own, and when the other half asks because it has to wait.
 */
const ACKNOWLEDGE_MS = 250;

/**
 * A half acknowledges at once when it has taken its share of 2 MiB: from 64 to 512 KiB. The other half keeps the bytes until then. Buffers
 * that are kept through two young collections grow old, and only a collection of the whole heap frees those. With WINDOW_UPDATEs alone, one fast tunnel kept 4 to 8 MiB.
 */
const [ACKNOWLEDGE_MOST, ACKNOWLEDGE_LEAST, ACKNOWLEDGE_TOGETHER] = [512 * 1024, 64 * 1024, 2 * 1024 * 1024];

/**
 * A process that dies closes all its connections at the same moment. All its peers have noticed, and we know it, within this time, in
 * milliseconds. Only busy ones need so long.
 */
export const TOGETHER_MS = 500;

/** What the halves of a process have in common. */
export interface Halves {
  readonly clock: Clock;
  /** How long a half waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** How much each may keep. Both sides must have the same `most`. */
  readonly keeping: Keeping;
  /** Halves that have a mark to send that is not urgent, or a deadline. */
  readonly sweep: Sweep;
}

/** How many taken bytes a half acknowledges at once. @param waiting halves that wait for the sweep: at least those with unacknowledged bytes */
export function acknowledgedAtOnce(waiting: number): number {
  return Math.min(ACKNOWLEDGE_MOST, Math.max(ACKNOWLEDGE_LEAST, ACKNOWLEDGE_TOGETHER / waiting));
}

export function halvesOf(
  { timeoutMs, budget }: ResumeOptions,
  clock: Clock,
  base = bufferSizes.kept,
  most = KEPT_MOST,
): Halves {
  return { clock, timeoutMs, keeping: { base, most, budget }, sweep: new Sweep(clock, ACKNOWLEDGE_MS) };
}
