import type { Clock, SharedBudget } from '@isthmus/runtime';
import type { Keeping } from './allowance.ts';
import { Sweep } from './sweep.ts';

export interface ResumeOptions {
  /** How long a tunnel waits for another way, in milliseconds. */
  readonly timeoutMs: number;
  /** What the process keeps for tunnels whose other end acknowledges late. */
  readonly budget: SharedBudget;
}

/** What a tunnel may keep in any case, in bytes: what is under way within a site. */
const BASE = 256 * 1024;

/** What it may keep at most, in bytes: 160 MB/s at a round-trip time of 100 ms, and as much again that is not acknowledged yet. */
const MOST = 32 * 1024 * 1024;

/**
 * Bytes that were taken here are acknowledged after so many milliseconds at most. That is sooner where the window of the carrier is enlarged
 * anyway, since a mark then travels for nothing, and where the other half asks, because it has to wait.
 */
const ACKNOWLEDGE_MS = 250;

/**
 * A process that dies closes all its connections in the same moment. Those at its other ends, and we, see that within this time, in
 * milliseconds: busy ones need some of it.
 */
export const TOGETHER_MS = 500;

/** What the halves of a process have in common. */
export interface Halves {
  readonly clock: Clock;
  /** How long a half waits for a new carrier, in milliseconds. */
  readonly timeoutMs: number;
  /** How much each may keep. The most is the same at the other side. */
  readonly keeping: Keeping;
  /** Halves that have something to say which is not urgent, or wait for something. */
  readonly sweep: Sweep;
}

export function halvesOf({ timeoutMs, budget }: ResumeOptions, clock: Clock, base = BASE, most = MOST): Halves {
  return { clock, timeoutMs, keeping: { base, most, budget }, sweep: new Sweep(clock, ACKNOWLEDGE_MS) };
}
