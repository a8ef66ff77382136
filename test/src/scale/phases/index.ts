import { dials } from './dials.ts';
import { known, memory } from './growth.ts';
import { death, herd } from './losses.ts';
import type { Phase } from './phase.ts';
import { rest } from './rest.ts';

export type { Phase, Sizes } from './phase.ts';

const [few, some, all] = dials as [Phase, Phase, Phase];

/** In an order in which the fleet grows as long as it can. */
export const PHASES: readonly Phase[] = [few, some, herd, known, memory, rest, all, death];
