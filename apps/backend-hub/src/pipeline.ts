import {
  type Attach,
  attachesInTurns,
  type Dial,
  type Observation,
  observedAttach,
  pipeline,
  takeTurns,
} from '@isthmus/tunnel';

interface HubDialOptions {
  readonly observation: Observation;
  /** Whether dials of several tenants come, which then take turns. */
  readonly manyTenants: boolean;
  /** Passes a dial on through the session that its gateway chose. */
  readonly session: Dial;
}

/** A hub's Dial, from a gateway's link to its session: the wait for a turn is part of the time that the hub reports. */
export function hubDial({ observation, manyTenants, session }: HubDialOptions): Dial {
  return pipeline({ role: 'hub', stages: manyTenants ? [takeTurns()] : [], open: session, observation });
}

interface HubAttachOptions extends Omit<HubDialOptions, 'session'> {
  /** Passes an attach on through the session that its gateway chose. */
  readonly session: Attach;
}

/** An attach's way through a hub. It is no dial: it is traced, and takes turns with other attaches. */
export function hubAttach({ observation, manyTenants, session }: HubAttachOptions): Attach {
  return observedAttach(manyTenants ? attachesInTurns(session) : session, observation);
}
