import {
  type Attach,
  attachesInTurns,
  type Dial,
  inTurns,
  type Observation,
  observed,
  observedAttach,
  type Stage,
} from '@isthmus/tunnel';

interface HubStagesOptions {
  readonly observation: Observation;
  /** Whether dials of several tenants come, which then take turns. */
  readonly manyTenants: boolean;
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

interface HubAttachOptions extends Omit<HubStagesOptions, 'session'> {
  /** Passes an attach on through the session that its gateway chose. */
  readonly session: Attach;
}

/** An attach's way through a hub. It is no dial: it is traced, and takes turns with other attaches. */
export function hubAttach({ observation, manyTenants, session }: HubAttachOptions): Attach {
  return observedAttach(manyTenants ? attachesInTurns(session) : session, observation);
}
