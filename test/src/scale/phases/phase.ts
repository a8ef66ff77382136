import type { Findings } from '../findings.ts';
import type { Stage } from '../stage.ts';

/** The size and duration of a run. */
export interface Sizes {
  /** Agents in the three measurements of dials; the last is the whole fleet. */
  readonly few: number;
  readonly some: number;
  readonly all: number;
  /** Agents of the herd. Two of three hold a session at the hub that restarts. */
  readonly herd: number;
  /** Dials before those that are measured. Each of three hubs then has had a few thousand, as has each gateway. */
  readonly firstDials: number;
  /** How long to dial, and how long to watch at rest, in milliseconds. */
  readonly dialMs: number;
  readonly restMs: number;
  /** How long agents take to move to the hubs that they prefer, in milliseconds. */
  readonly rebalanceMs: number;
}

/** Measures a plane with a fleet. */
export interface Phase {
  readonly name: string;
  /** One line about what it does. */
  readonly what: string;
  /** Returns how many agents must be there when it starts. */
  readonly agents: (sizes: Sizes) => number;
  /** Whether it changes the plane, so that the next phase needs a new one. */
  readonly spoils?: boolean;
  readonly run: (stage: Stage, sizes: Sizes) => Promise<Findings>;
}
