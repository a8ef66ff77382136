import { type Dial, inTurns, type Observation, observed, type Stage } from '@isthmus/tunnel';

export interface HubStagesOptions {
  readonly observation: Observation;
  /** Whether dials of several tenants come, which then take turns. */
  readonly manyTenants?: boolean;
  /** Passes a dial on through the session that its gateway chose. */
  readonly session: Dial;
}

/** A dial's way through a hub, from a gateway's link to its session. The test beside it says why in this order. */
export function hubStages({ observation, manyTenants, session }: HubStagesOptions): readonly Stage[] {
  const observe: Stage = (next) => observed('hub', next, observation);
  const takeTurns: Stage = (next) => inTurns(next);
  const passOn: Stage = () => session;
  return [observe, ...(manyTenants ? [takeTurns] : []), passOn];
}
