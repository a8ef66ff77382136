import {
  type AgentName,
  type Change,
  type HubRecord,
  MAX_QUARANTINED,
  type Member,
  type SessionRecord,
  type Snapshot,
} from '@isthmus/tunnel';

/**
 * The directory of a plane: which hubs are there and which sessions they hold.
 *
 * Hubs are the truth and write only of themselves; the store behind this port is a directory that may be slow, away or
 * emptied at any time. So nothing here that a hub or gateway calls while it carries tunnels can block or throw: writes
 * are remembered and repeated until they are in, watchers keep their last copy, and what the store lost is written again.
 */
export interface Registry {
  /**
   * Puts a hub in the directory and keeps it there until `close()`. Returns at once, also while the store is away.
   * It takes over from an earlier process of the hub (see `superseded`). Where that one's incarnation is later, since the clock
   * went back between their starts, all records are written under the incarnation after that.
   */
  register(hub: HubRecord, state?: StateListener): HubRegistration;
  /** What the store holds now. Rejects with RegistryUnavailable when it does not answer in time. */
  snapshot(): Promise<Snapshot>;
  /** Follows the directory until `signal` aborts. */
  watch(listener: WatchListener, signal: AbortSignal): void;
  /** Says that a process is there, until `close()`; returns at once. One that dies without a word is missed within seconds. */
  join(member: Member): Membership;
  /** The processes that are there, by their ids. Rejects as `snapshot` does, and when `signal` aborts. */
  members(signal?: AbortSignal): Promise<readonly Member[]>;
  /**
   * Puts an agent in quarantine, in the whole plane and whether it is there or not: no dial goes to its sessions, while tunnels
   * that run go on. Without a reason it is let out. Resolves to whether that was news. Rejects as `snapshot` does, with
   * QuarantineFull, and with RangeError for what is too long.
   *
   * The last word about an agent holds, by the store's clock, and all who follow the directory remember it: who finds a store that
   * lacks a word, since it was emptied or set back, writes it there again. So a quarantine, and its end, are lost only when the
   * store loses them while nobody runs who has heard of them.
   */
  quarantine(agent: AgentName, reason: string | undefined): Promise<boolean>;
  /** Ends every registration (see `HubRegistration.close`), membership, watch and connection. */
  close(): Promise<void>;
}

/** What a hub holds; all its writes go through it, in order. */
export interface HubRegistration {
  /** Resolves when a later process of this hub took over; from then on nothing is written. Never rejects. */
  readonly superseded: Promise<void>;
  /**
   * A session that is new or changed. Its `hubId` is the registered hub's, and its `version` is higher
   * than in any call before about it. What differs from the last written record in nothing but `version` is not written.
   */
  announce(session: SessionRecord): void;
  /** A session that ended. Written after a pause, so that one announced again under the same id meanwhile costs nothing. */
  withdraw(sessionId: string, version: number): void;
  /** Changes the hub's own record; written at once. */
  update(hub: HubUpdate): void;
  /** Takes the hub and all its sessions out. Waits for the store no longer than one command's deadline; expiry does the rest. */
  close(): Promise<void>;
}

export interface Membership {
  /** Takes the member out. Waits for the store no longer than one command's deadline; expiry does the rest. */
  close(): Promise<void>;
}

export type HubUpdate = Partial<Pick<HubRecord, 'draining' | 'zone' | 'peerAddress' | 'agentAddress'>>;

/** Told when the store begins or ceases to answer, at a bounded rate. `detail` is one line, free of secrets. */
export type StateListener = (up: boolean, detail: string) => void;

/**
 * Called in the order of the directory's history, never from within a call to the registry. A change is told only when it
 * changes something; of these rules a copy that follows them needs no more:
 * - `hub` of a later incarnation ends the sessions of the earlier ones; `hub-gone` ends the hub's sessions.
 * - `session` follows its hub; of two about one session the higher version holds.
 * - of two words about the quarantine of an agent the higher version holds.
 */
export interface WatchListener {
  /** First, and again whenever changes may have been missed: replaces everything told before. */
  snapshot(snapshot: Snapshot): void;
  change(change: Change): void;
  /**
   * The store answered: about once a second while it is well. Never told where there is no store to ask.
   * @param behind changes that it holds and this watcher has not read
   */
  answered(behind: number): void;
  state: StateListener;
}

/** The store did not answer, or answered that it cannot. Nothing is lost by it: writes are repeated, copies are kept. */
export class RegistryUnavailable extends Error {
  override readonly name = 'RegistryUnavailable';
}

/** As many agents are in quarantine as may be: one has to be let out first. */
export class QuarantineFull extends Error {
  override readonly name = 'QuarantineFull';

  constructor() {
    super(`${MAX_QUARANTINED} agents are in quarantine, and there is no room for more: let one out first`);
  }
}
