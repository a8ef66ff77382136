import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import type { Change, HubRecord, Member, Quarantine, SessionRecord, Snapshot } from './records.ts';

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
   * an earlier process of the same hub (see `superseded`). If that process has a later incarnation, because the clock was set back
   * between their starts, all records are written under the next incarnation.
   */
  register(hub: HubRecord, state?: StateListener): HubRegistration;
  /** Returns what the store holds now. Rejects with RegistryUnavailable if it does not answer in time. */
  snapshot(): Promise<Snapshot>;
  /** Follows the directory until `signal` aborts. */
  watch(listener: WatchListener, signal: AbortSignal): void;
  /** Lists a process until `close()`. Returns at once. A process that dies without `close()` disappears from the list within seconds. */
  join(member: Member): Membership;
  /** Returns the processes that are present, sorted by id. Rejects as `snapshot` does, and when `signal` aborts. */
  members(signal?: AbortSignal): Promise<readonly PresentMember[]>;
  /**
   * Puts an agent in quarantine in the whole plane, whether it is connected or not: its sessions get no dials, but running tunnels
   * continue. Without a reason, releases the agent. Resolves to whether that changed anything. Rejects as `snapshot` does, with
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
  /** Resolves when a later process of this hub has taken over. From then on nothing is written. Never rejects. */
  readonly superseded: Promise<void>;
  /**
   * Writes a new or changed session. Its `hubId` is the registered hub's. Its `version` is higher than in any earlier call about it. A
   * session that differs from the last written record only in `version` is not written.
   */
  announce(session: SessionRecord): void;
  /** Removes a session that ended. Written after a pause, so that a session announced again under the same id meanwhile costs nothing. */
  withdraw(sessionId: string, version: number): void;
  /** Changes the hub's own record. Written at once. */
  update(hub: HubUpdate): void;
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

export interface Membership {
  /** Removes the member. Waits for the store for at most one command's deadline. If that is not enough, the record expires. */
  close(): Promise<void>;
}

export type HubUpdate = Partial<Pick<HubRecord, 'draining' | 'zone' | 'peerAddress' | 'agentAddress'>>;

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
