import type { AgentIdentifiers, AgentName } from '@isthmus/tunnel';

/**
 * What the registry holds. Hubs are the source of truth and write only about themselves. Every record names the hub's
 * incarnation, so that a write of a dead incarnation loses to what its successor wrote.
 */

/** Identifies the process of a hub that wrote a record: the clock at its start, in milliseconds. A later start is greater. */
export type Incarnation = number;

export interface HubRecord {
  readonly hubId: string;
  readonly incarnation: Incarnation;
  /** `host:port` where gateways reach the hub; empty for a hub that only the gateway in its own process uses. */
  readonly peerAddress: string;
  /** `host:port` where agents reach the hub; empty when only a load balancer's address is known. */
  readonly agentAddress: string;
  readonly zone: string;
  readonly draining: boolean;
}

export interface SessionRecord {
  /** Unique in the plane; chosen by the hub. */
  readonly sessionId: string;
  readonly tenant: string;
  readonly agentId: string;
  readonly identifiers: AgentIdentifiers;
  readonly hubId: string;
  readonly incarnation: Incarnation;
  /** Counts a hub's writes. Of two writes about one session, the greater version is the later one. */
  readonly version: number;
  readonly draining: boolean;
  /** When the session opened, in milliseconds since the epoch. */
  readonly since: number;
  /** The agent's process: tunnels through it can be resumed through its other sessions. Unset if it does not say. */
  readonly instance?: string;
  /** The name in the agent's credential, if the credential is its own. Unset where no tenants are configured. */
  readonly credential?: string;
}

/** An operator's last statement about an agent: its sessions get no dials, or they get dials again. */
export interface Quarantine extends AgentName {
  /** Why it is in quarantine. Unset if it was released. */
  readonly reason?: string;
  /** Greater for a later statement: milliseconds of the registry's clock, or the previous version plus one. */
  readonly version: number;
}

/** A process of the plane, recorded so that operators can find it. */
export interface Member {
  /** A hub's id, or the name a gateway has given itself. Two processes with the same id are two members. */
  readonly memberId: string;
  readonly roles: readonly ('gateway' | 'hub')[];
  /** `host:port` of its admin port. A loopback address belongs to the machine that `host` names. */
  readonly adminAddress: string;
  /** The name of its machine. */
  readonly host: string;
  readonly version: string;
  readonly zone: string;
  /** When it started, in milliseconds since the epoch. */
  readonly since: number;
}

/** A change of the directory. Applying one twice, or an old one late, changes nothing. */
export type Change =
  | {
      readonly kind: 'hub';
      readonly hub: HubRecord;
      /** All its sessions, if it wrote them again. Unset if only its own record changed. */
      readonly sessions?: readonly SessionRecord[];
    }
  | {
      readonly kind: 'hub-gone';
      readonly hubId: string;
      readonly incarnation: Incarnation;
      /** The hub was silent for too long. Unset if it shut down cleanly. */
      readonly expired?: true;
    }
  | { readonly kind: 'session'; readonly session: SessionRecord }
  | {
      readonly kind: 'session-gone';
      readonly sessionId: string;
      readonly hubId: string;
      readonly incarnation: Incarnation;
      readonly version: number;
    }
  | { readonly kind: 'quarantine'; readonly quarantine: Quarantine };

export interface Snapshot {
  readonly hubs: readonly HubRecord[];
  readonly sessions: readonly SessionRecord[];
  /** The last statement about each agent that is or was in quarantine. */
  readonly quarantines: readonly Quarantine[];
}
