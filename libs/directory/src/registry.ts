import type { AgentIdentifiers, AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';

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

/**
 * The directory of a plane: its hubs, and the sessions they hold.
 *
 * Hubs are the source of truth, and each writes only about itself. The store behind this port is a directory that may be slow, down or
 * emptied at any time. So nothing here that a hub or gateway calls while it carries tunnels can block or throw: writes are remembered
 * and retried until they succeed, watchers keep their replica, and what the store lost is written again.
 */
export interface Registry {
  /**
   * Puts a hub in the directory and keeps it there until `close()`. Returns at once, even if the store is down. The hub takes over from
   * an earlier process of the same hub, as after a crash (see `superseded`). If that process has a later incarnation, because the clock was set back
   * between their starts, all records are written under the next incarnation.
   */
  register(hub: HubRecord, state?: StateListener): HubRegistration;
  /** Follows the directory until `signal` aborts. */
  watch(listener: WatchListener, signal: AbortSignal): void;
  /** Lists a process until `close()`. Returns at once. A process that dies without `close()` disappears from the list within seconds. */
  join(member: Member): MemberEntry;
  /** Returns the processes that are present, sorted by id. Rejects with RegistryUnavailable if the store does not answer in time. */
  members(): Promise<readonly PresentMember[]>;
  /**
   * Puts an agent in quarantine in the whole plane, whether it is connected or not: its sessions get no dials, but running tunnels
   * continue. Without a reason, releases the agent. Resolves to whether that changed anything. Rejects as `members` does, with
   * QuarantineFull, and with RangeError if a text is too long or a name is empty.
   *
   * The last decision about an agent holds, by the store's clock, and every follower of the directory remembers it. A follower that
   * finds a decision missing, because the store was emptied or set back, writes it again. So a quarantine, or its end, is lost only if
   * the store loses it while no process runs that knew it.
   */
  quarantine(agent: AgentName, reason: string | undefined): Promise<boolean>;
  /** Ends every registration (see `HubRegistration.close`), membership, watch and connection. */
  close(): Promise<void>;
}

/** What a hub holds. All its writes go through it, in order. */
export interface HubRegistration {
  /**
   * Resolves when a later process of this hub has taken over, with its record, if that can be read. From then on nothing is written. Never
   * rejects.
   */
  readonly superseded: Promise<HubRecord | undefined>;
  /**
   * Writes a new or changed session. Its `hubId` is the registered hub's. Its `version` is higher than in any earlier call about it. A
   * session that differs from the last written record only in `version` is not written.
   */
  announce(session: SessionRecord): void;
  /** Removes a session that ended. Written after a pause, so that a session announced again under the same id meanwhile costs nothing. */
  withdraw(sessionId: string, version: number): void;
  /** Says in the hub's own record that it drains. Written at once. */
  drain(): void;
  /**
   * Removes the hub and all its sessions. Waits for the store for at most one command's deadline. If that is not enough, the record
   * expires.
   */
  close(): Promise<void>;
}

/** A process that the list names. */
export interface PresentMember extends Member {
  /** For how long it has not written that it is there, in milliseconds, by the store's clock. One that leaves was never silent for long. */
  readonly quietMs: number;
}

export interface MemberEntry {
  /** Removes the member. Waits for the store for at most one command's deadline. If that is not enough, the record expires. */
  close(): Promise<void>;
}

/** Called when the store starts or stops answering, at a bounded rate. `detail` is one line without secrets. */
export type StateListener = (up: boolean, detail: string) => void;

/**
 * Keeps a `Replica` of the directory, which has the rules for what a snapshot or a change does to it. Called in the order of the
 * directory's history, never from within a call to the registry. A change may come late, twice, or without effect.
 */
export interface WatchListener {
  /**
   * Called first, and again whenever changes may have been missed.
   * @returns the quarantines that the snapshot lacks. The registry writes them again
   */
  snapshot(snapshot: Snapshot): readonly Quarantine[];
  change(change: Change): void;
  /** Returns the hubs that the replica holds. The registry, which keeps no copy, reports those gone whose record stays missing. */
  hubs(): Iterable<HubRecord>;
  /**
   * Called when the store answered: about once a second while it is healthy. Never called if there is no store to ask.
   * @param behind number of changes that the store holds and this watcher has not read
   */
  answered(behind: number): void;
  state: StateListener;
}

/** The store did not answer, or refused to serve. Nothing is lost: writes are retried and replicas are kept. */
export class RegistryUnavailable extends Error {
  override readonly name = 'RegistryUnavailable';
}

/** As many agents of a tenant are in quarantine as may be. */
export class QuarantineFull extends Error {
  override readonly name = 'QuarantineFull';

  constructor(tenant: string) {
    super(
      `tenant ${tenant} has as many agents in quarantine as it leaves room for others (${2 * DIRECTORY.quarantined} in all). Lift one first: ` +
        'isthmus quarantine AGENT --lift',
    );
  }
}

/** Returns members in listing order: by id, and the elder first among those with one id. */
export function byId<M extends Member>(members: Iterable<M>): M[] {
  return [...members].sort((a, b) => (a.memberId < b.memberId ? -1 : a.memberId > b.memberId ? 1 : a.since - b.since));
}

/** @throws RangeError if a text is too long or a name is empty. */
export function checkQuarantine({ tenant, agentId }: AgentName, reason = ''): void {
  if (tenant === '' || agentId === '') throw new RangeError('a quarantine needs the tenant and the id of its agent');
  const { quarantineAgentId, quarantineTenant, quarantineReason } = DIRECTORY;
  for (const [name, text, longest] of [
    ['agentId', agentId, quarantineAgentId],
    ['tenant', tenant, quarantineTenant],
    ['reason', reason, quarantineReason],
  ] as const) {
    if (text.length > longest) throw new RangeError(`the ${name} of a quarantine is longer than ${longest} characters`);
  }
}
