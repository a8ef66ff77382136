import { dials } from './dials.ts';
import { known, memory } from './growth.ts';
import { death, herd } from './losses.ts';
import type { Phase, PlanePhase } from './phase.ts';
import { registry } from './registry.ts';
import { rest } from './rest.ts';

export type { Phase, Sizes } from './phase.ts';

const [few, some, all] = dials as [PlanePhase, PlanePhase, PlanePhase];

/** Ordered so that the fleet only grows for as long as possible. */
export const PHASES: readonly Phase[] = [few, some, herd, known, memory, rest, all, death, registry];
