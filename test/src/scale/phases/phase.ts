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
}

export interface Phase {
  readonly name: string;
  /** One line of what it does. */
  readonly what: string;
  /** Agents that are there when it starts. */
  readonly agents: (sizes: Sizes) => number;
  /** Leaves the plane other than it was, so that the next phase gets a new one. */
  readonly spoils?: boolean;
  readonly run: (stage: Stage, sizes: Sizes) => Promise<Findings>;
}
