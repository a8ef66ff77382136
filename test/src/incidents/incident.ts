import type { Member, Scope } from '../harness/index.ts';

/** What an operator has when the telephone rings. */
export interface Staged {
  /** What people complain about. */
  readonly symptom: string;
  /** What cannot be reached, and whose dials fail. Not printed: an operator finds out. */
  readonly destination?: string | undefined;
  readonly tenant?: string;
  /** Gateways, hubs and agents: their admin ports are known from their manifests. */
  readonly members: readonly Member[];
}

/** A fault in a plane that carries load, and what somebody would notice of it. */
export interface Incident {
  /** Its name in tests. It is not printed before the end, because it says what is wrong. */
  readonly name: string;
  /** What is wrong, and what ends it. Printed at the end. */
  readonly answer: string;
  /** How many agents it needs. */
  readonly fewest: number;
  /** @param agents how many the plane has, at least `fewest` */
  stage(scope: Scope, agents: number): Promise<Staged>;
}
