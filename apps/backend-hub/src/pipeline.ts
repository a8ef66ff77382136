import { memory } from '@isthmus/runtime';
import {
  type Attach,
  attachesInTurns,
  type Dial,
  type Observation,
  observedAttach,
  pipeline,
  refuseWhenScarce,
  takeTurns,
} from '@isthmus/tunnel';

interface HubWay<Session> {
  readonly observation: Observation;
  /** Whether dials of several tenants may come. They then take turns. */
  readonly manyTenants: boolean;
  /** Passes it on through the session that its gateway chose. */
  readonly session: Session;
}

/** A hub's Dial, from a gateway's link to its session: the wait for a turn is part of the time that the hub reports. */
export function hubDial({ observation, manyTenants, hubId, session }: HubWay<Dial> & { readonly hubId: string }): Dial {
  // A dial needs no descriptor here.
  const scarce = memory.limited ? [refuseWhenScarce(`hub ${hubId}`, { scarce: false })] : [];
  const stages = [...(manyTenants ? [takeTurns()] : []), ...scarce];
  return pipeline({ role: 'hub', stages, open: session, observation });
}

/** An attach's way through a hub. It is no dial: it is traced, and takes turns with other attaches. */
export function hubAttach({ observation, manyTenants, session }: HubWay<Attach>): Attach {
  return observedAttach(manyTenants ? attachesInTurns(session) : session, observation);
}
