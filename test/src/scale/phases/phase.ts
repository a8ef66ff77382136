import type { Findings } from '../findings.ts';
import type { Stage } from '../stage.ts';

/** How large and how long a run is. */
export interface Sizes {
  /** Agents of the three measurements of dials; the last is the whole fleet. */
  readonly few: number;
  readonly some: number;
  readonly all: number;
  /** Agents of the herd. Two of three hold a session to the hub that restarts. */
  readonly herd: number;
  /** How long to dial, and how long to watch at rest, in milliseconds. */
  readonly dialMs: number;
  readonly restMs: number;
  /** How long agents take to move to the hubs that they prefer, in milliseconds. */
  readonly rebalanceMs: number;
}

interface Named {
  readonly name: string;
  /** One line of what it does. */
  readonly what: string;
}

/** Measures a plane with a fleet. */
export interface PlanePhase extends Named {
  /** Agents that are there when it starts. */
  readonly agents: (sizes: Sizes) => number;
  /** Leaves the plane other than it was, so that the next phase gets a new one. */
  readonly spoils?: boolean;
  readonly run: (stage: Stage, sizes: Sizes) => Promise<Findings>;
}

/** Measures something by itself, with no plane beside it. */
export interface LonePhase extends Named {
  readonly alone: () => Promise<Findings>;
}

export type Phase = PlanePhase | LonePhase;
