import type { Scope } from '../harness/index.ts';
import type { Load } from '../rig/calling.ts';
import type { Carried, Topology } from '../rig/plane.ts';

/** How long a supervisor takes to restart a process, in milliseconds. */
export const RESTART_AFTER = 2000;

/** Bounds on counts hold for every row: no failed dial, no wrong byte, and no cut tunnel except those that a strike names. */
export interface Bounds {
  /** The slowest answer to a dial, in milliseconds. */
  readonly dialMs?: number;
  /** How long after a strike the callers of its tunnels may wait for the end, in milliseconds. */
  readonly callersEndMs?: number;
  /** How long after a strike the destination sockets of its tunnels may stay, in milliseconds. */
  readonly destinationsEndMs?: number;
  /** How late the frames of tunnels that outlive a strike may be, in milliseconds: the slowest of a hundred. */
  readonly pauseMs?: number;
}

/** The moment of a fault, and what it takes with it. */
export interface Strike {
  readonly at: number;
  /** When the killed process was gone, which takes a moment on a busy machine. */
  readonly over: number;
  /** Long tunnels that it may cut, each once. */
  readonly tunnels: ReadonlySet<number>;
  /** Long tunnels that it touches and must not cut. */
  readonly outlive: ReadonlySet<number>;
  /** The door of a gateway that dies: pending dials through it fail. */
  readonly gateway?: number;
  /** Whether its tunnels must end: true if a process is gone, false if it drains. */
  readonly fatal: boolean;
}

export interface StrikeOptions {
  /** The tunnels that end with what is struck. Default: none. */
  readonly takes?: (carried: Carried) => boolean;
  /** The tunnels that go on another way. Default: none. */
  readonly touches?: (carried: Carried) => boolean;
  /** See `Strike.gateway`. Refused if the plane is held: no dial fails there. */
  readonly gateway?: number;
  /** Default: whether it takes tunnels. */
  readonly fatal?: boolean;
}

/** One more figure of a row, and its bound if the row asserts one. */
export interface Measure {
  readonly name: string;
  readonly value: number;
  readonly unit: 'ms' | 'MB' | '% of a processor' | '';
  readonly most?: number;
}

export interface Context<T extends Topology = Topology> {
  readonly scope: Scope;
  readonly plane: T;
  readonly load: Load;
  /** What the load dials, `host:port`. It does what the first byte says (`modes.ts`). */
  readonly destination: string;
  readonly short: boolean;
  /** Lists the tunnels that a fault takes with it, and then commits the fault. */
  strike(options: StrikeOptions, commit: () => unknown): Promise<Strike>;
  /** Lets the load run on for this many milliseconds. A short run waits `short`, or a quarter of `ms`. */
  hold(ms: number, short?: number): Promise<void>;
  /** Adds a figure to the table. @param most what the row asserts */
  measure(name: string, value: number, unit?: Measure['unit'], most?: number): void;
  /** Adds a remark to the table. */
  note(text: string): void;
}

/** A fault, where it is injected, and what must hold. */
export interface Row<T extends Topology = Topology> {
  /** The name on the command line. */
  readonly name: string;
  /** The fault, as the table describes it. */
  readonly fault: string;
  /** What must hold, as `--list` says it. */
  readonly holds: string;
  readonly bounds: Bounds;
  /** Dials a second of its load at most: for faults that need much of the machine themselves. */
  readonly dialsPerSecond?: number;
  /** How many bytes each of them sends, and gets back. */
  readonly dialBytes?: number;
  /** Long tunnels finish cleanly after a time between these milliseconds; if unset, they stay for the whole row. */
  readonly tunnelLife?: (short: boolean) => readonly [least: number, most: number];
  /** Returns why the row cannot run here; false if it can. */
  readonly skip?: () => string | false;
  topology(scope: Scope): Promise<T>;
  /** Resolves when the fault is over; the time until all is normal starts then. */
  inject(context: Context<T>): Promise<void>;
}
