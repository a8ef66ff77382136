import { countIn, deleteFrom, getOrPut } from '@isthmus/runtime';
import { type AgentName, agentKey } from '@isthmus/tunnel';
import { Pool, prefixLength, type Session, type SessionState, sessionKeys } from './placement.ts';
import type { SessionRecord } from './registry.ts';
import { Replica } from './replica.ts';

/** Called with the hub's id when a session arrives, or when a hub is reachable again. */
type Arrived = (hubId: string) => void;

/** Called when a session opens or closes. A changed record counts as a close and an open. */
export interface SessionWatcher {
  came(session: SessionRecord): void;
  went(session: SessionRecord): void;
  /** Its hub has changed or can be reached again, or its agent's quarantine has changed. */
  changed?(session: SessionRecord): void;
}

interface DirectoryOptions {
  /** The hub in this process, if there is one. Its sessions are preferred. */
  readonly ownHub?: string;
  readonly random?: () => number;
}

/** What is found of a tenant. */
interface Tenant {
  sessions: number;
  readonly pools: Map<string, Pool>;
  /** Sessions in quarantine, which are in no pool, by the same keys. */
  readonly quarantined: Map<string, Set<Session>>;
  /** How many sessions use a prefix length, by address family. */
  readonly lengths: Record<4 | 6, Map<number, number>>;
  /** The lengths in use, longest first. */
  readonly longestFirst: Record<4 | 6, readonly number[]>;
}

/**
 * A gateway's replica of the plane, with an index by tenant, by what sessions can reach and by preference: a dial finds its session without
 * visiting the others. Sessions of an agent in quarantine are kept, but never chosen.
 */
export class Directory extends Replica {
  readonly ownHub: string | undefined;
  readonly random: () => number;
  readonly #sessions = new Map<string, Session>();
  readonly #tenants = new Map<string, Tenant>();
  readonly #byAgent = new Map<string, Set<Session>>();
  /** Who waits for a session, by tenant. */
  readonly #waiting = new Map<string, Set<Arrived>>();
  readonly #watchers = new Set<SessionWatcher>();
  /** Hubs whose links are silent. */
  readonly #suspects = new Set<string>();

  constructor({ ownHub, random = Math.random }: DirectoryOptions = {}) {
    super();
    this.ownHub = ownHub;
    this.random = random;
  }

  /** Call this when a hub is reachable again. Waiting dials then treat its sessions as new arrivals. */
  reachable(hubId: string): void {
    const tenants = new Set<string>();
    for (const session of this.sessionsAt(hubId)) {
      tenants.add(session.tenant);
      for (const watcher of this.#watchers) watcher.changed?.(session);
    }
    for (const tenant of tenants) this.#tell(tenant, hubId);
  }

  /** Call when a hub's link falls silent, or is heard again. Meanwhile its sessions count as draining, for all tenants. What dials accuse is in `Suspects`. */
  suspect(hubId: string, is: boolean): void {
    if (is === this.#suspects.has(hubId)) return;
    if (is) this.#suspects.add(hubId);
    else this.#suspects.delete(hubId);
    for (const session of [...this.sessionsAt(hubId)]) this.moved(session);
  }

  /** Calls back when a tenant gets a session, or one of its hubs is reachable again. @returns a function that stops waiting */
  onArrival(tenant: string, arrived: Arrived): () => void {
    getOrPut(this.#waiting, tenant, () => new Set<Arrived>()).add(arrived);
    return () => void deleteFrom(this.#waiting, tenant, arrived);
  }

  #tell(tenant: string, hubId: string): void {
    // Iterate over a copy: a callback may stop waiting, or wait again.
    for (const arrived of [...(this.#waiting.get(tenant) ?? [])]) arrived(hubId);
  }

  /** Reports the existing sessions, then every change. @returns a function that stops watching */
  watch(watcher: SessionWatcher): () => void {
    for (const session of this.sessions()) watcher.came(session);
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Removes a session that its hub does not have, or whose connection to the agent ended, until the hub announces it again. */
  forget(sessionId: string): void {
    const record = this.#sessions.get(sessionId)?.record;
    if (record) this.apply({ kind: 'session-gone', ...record });
  }

  session(sessionId: string): Session | undefined {
    return this.#sessions.get(sessionId);
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Yields a tenant's sessions, including those in quarantine. Visits those of all tenants. */
  *of(tenant: string): Generator<Session> {
    for (const session of this.#sessions.values()) if (session.record.tenant === tenant) yield session;
  }

  /** An agent's sessions, including those in quarantine. */
  ofAgent(agent: AgentName): Iterable<Session> {
    return this.#byAgent.get(agentKey(agent)) ?? [];
  }

  /** Open tunnels and pending dials of this gateway through a session's agent, over all hubs. */
  loadOf({ record }: Session): number {
    let open = 0;
    for (const sibling of this.ofAgent(record)) open += sibling.open;
    return open;
  }

  /** What a tenant has; nothing without sessions. */
  ofTenant(tenant: string): Omit<Tenant, 'lengths'> {
    return this.#tenants.get(tenant) ?? NOTHING;
  }

  /** How many sessions a tenant has, including those in quarantine. */
  sessionsOf(tenant: string): number {
    return this.ofTenant(tenant).sessions;
  }

  /** How many sessions are in quarantine, over all tenants. */
  get quarantinedSessions(): number {
    let count = 0;
    for (const { quarantined } of this.#tenants.values()) count += quarantined.get('any')?.size ?? 0;
    return count;
  }

  /** The tenants that have sessions, and how many. */
  *tenants(): Iterable<readonly [tenant: string, sessions: number]> {
    for (const [tenant, { sessions }] of this.#tenants) yield [tenant, sessions];
  }

  /** Counts a tunnel through a session. @returns undoes that */
  enter(sessionId: string): () => void {
    const session = this.#sessions.get(sessionId);
    return session ? countOn(session) : () => {};
  }

  protected override came(record: SessionRecord, before?: SessionRecord): void {
    if (before) for (const watcher of this.#watchers) watcher.went(before);
    this.#place(record, true);
    for (const watcher of this.#watchers) watcher.came(record);
  }

  protected override went(record: SessionRecord): void {
    this.#remove(record.sessionId);
    for (const watcher of this.#watchers) watcher.went(record);
  }

  protected override moved(record: SessionRecord): void {
    this.#place(record);
    for (const watcher of this.#watchers) watcher.changed?.(record);
  }

  #place(record: SessionRecord, isNew = false): void {
    const hub = this.hub(record.hubId);
    const draining = record.draining || (hub?.draining ?? false) || this.#suspects.has(record.hubId);
    const quarantined = this.quarantines.ofSession(record)?.reason;
    const own = record.hubId === this.ownHub;
    const before = this.#sessions.get(record.sessionId)?.state;
    this.#put(record, { own, zone: hub?.zone ?? '', draining, quarantined });
    // Those who wait could have taken it already, unless it is better now.
    const better = isNew || !before || before.quarantined !== undefined || (before.draining && !draining);
    if (quarantined === undefined && better) this.#tell(record.tenant, record.hubId);
  }

  /** Adds a session, or changes the one with the same id, which keeps its count of tunnels. */
  #put(record: SessionRecord, state: SessionState): void {
    const { sessionId, identifiers } = record;
    const session = this.#remove(sessionId) ?? { record, state, keys: [], open: 0 };
    session.record = record;
    session.state = state;
    session.keys = sessionKeys(identifiers);
    this.#sessions.set(sessionId, session);
    const tenant = getOrPut(this.#tenants, record.tenant, emptyTenant);
    for (const key of session.keys) {
      if (state.quarantined !== undefined) getOrPut(tenant.quarantined, key, () => new Set<Session>()).add(session);
      else getOrPut(tenant.pools, key, () => new Pool()).put(session);
      countLength(tenant, key, 1);
    }
    tenant.sessions++;
    getOrPut(this.#byAgent, agentKey(record), () => new Set<Session>()).add(session);
  }

  /** @returns the removed session, if there was one */
  #remove(sessionId: string): Session | undefined {
    const session = this.#sessions.get(sessionId);
    if (!session) return undefined;
    const { record, state, keys } = session;
    this.#sessions.delete(sessionId);
    const tenant = this.#tenants.get(record.tenant) as Tenant;
    for (const key of keys) {
      const pool = tenant.pools.get(key);
      pool?.remove(session);
      if (pool?.size === 0) tenant.pools.delete(key);
      if (state.quarantined !== undefined) deleteFrom(tenant.quarantined, key, session);
      countLength(tenant, key, -1);
    }
    tenant.sessions--;
    if (tenant.sessions === 0) this.#tenants.delete(record.tenant);
    deleteFrom(this.#byAgent, agentKey(record), session);
    return session;
  }
}

function emptyTenant(): Tenant {
  return {
    sessions: 0,
    pools: new Map(),
    quarantined: new Map(),
    lengths: { 4: new Map(), 6: new Map() },
    longestFirst: { 4: [], 6: [] },
  };
}

const NOTHING = emptyTenant();

function countLength(tenant: Tenant, key: string, by: 1 | -1): void {
  const prefix = prefixLength(key);
  if (!prefix) return;
  const { family, bits } = prefix;
  const lengths = tenant.lengths[family];
  const count = countIn(lengths, bits, by);
  if (count === (by === 1 ? 1 : 0)) tenant.longestFirst[family] = [...lengths.keys()].sort((a, b) => b - a);
}

/** Counts a tunnel on a session. @returns a function that undoes it. It lives as long as the tunnel, so its closure holds only the session */
export function countOn(session: Session): () => void {
  session.open++;
  return () => {
    session.open--;
  };
}
