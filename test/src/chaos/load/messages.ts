import type { Door, Protocol } from '../../rig/door.ts';

export interface LoadSettings {
  readonly doors: readonly Door[];
  /** The destination of short dials: it sends back what it gets. */
  readonly echo: string;
  /** The port of long tunnels: tunnel n goes to 127.0.1.(n + 1), so that the plane's own lists tell them apart. */
  readonly framesPort: number;
  readonly dialsPerSecond: number;
  readonly tunnels: number;
  /** Tunnels finish after a time between these milliseconds and are opened again; if unset, they stay. */
  readonly tunnelLife?: readonly [least: number, most: number];
}

/**
 * One dial and its outcome. `failed`: no tunnel. `cut`: there was a tunnel, but it ended before its few bytes were back.
 * `wrong`: other bytes came back.
 */
export interface DialRecord {
  readonly protocol: Protocol;
  /** The gateway that was dialled first, and the one that answered. */
  readonly first: number;
  readonly by: number;
  /** By the shared clock, in milliseconds. */
  readonly at: number;
  /** Milliseconds until the answer, whatever it was. */
  readonly ms: number;
  readonly outcome: 'ok' | 'failed' | 'cut' | 'wrong';
  readonly error?: string;
  /** When the tunnel of a dial that is `cut` ended. */
  readonly endedAt?: number;
}

/** A long tunnel that ended before it had finished. */
export interface Cut {
  readonly tunnel: number;
  readonly at: number;
  readonly how: string;
}

/** A frame of a long tunnel that came late. */
export interface Pause {
  readonly tunnel: number;
  /** When it came. */
  readonly at: number;
  /** How late. */
  readonly ms: number;
}

/** What the load's process reports, several times a second. */
export interface Report {
  readonly dials: readonly DialRecord[];
  readonly cuts: readonly Cut[];
  readonly pauses: readonly Pause[];
  readonly wrong: readonly string[];
  /** Tunnels that received a frame within the last second. */
  readonly moving: number;
  /** Long tunnels that have carried bytes since they were opened. */
  readonly carrying: number;
  /** Milliseconds of processor time so far. */
  readonly cpuMs: number;
}
