import { deleteFrom, getOrPut } from '@isthmus/runtime';
import type { AgentName } from '@isthmus/tunnel';
import { Placement, type Session } from './placement.ts';
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

/**
 * A gateway's replica of the plane, with an index that finds the session for a destination. Sessions of an agent in quarantine are kept,
 * but never chosen.
 */
export class Directory extends Replica {
  readonly ownHub: string | undefined;
  readonly random: () => number;
  /** Its sessions, as routes find them. */
  readonly placement = new Placement();
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

  /** The link to a hub is silent, or was heard again. Until then its sessions count as draining, for all tenants. What dials accuse is in `Suspects`. */
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
    const record = this.placement.get(sessionId)?.record;
    if (record) this.apply({ kind: 'session-gone', ...record });
  }

  session(sessionId: string): Session | undefined {
    return this.placement.get(sessionId);
  }

  /** An agent's sessions, including those in quarantine. */
  ofAgent(agent: AgentName): Iterable<Session> {
    return this.placement.ofAgent(agent);
  }

  /** Counts a tunnel through a session. @returns undoes that */
  enter(sessionId: string): () => void {
    const session = this.placement.get(sessionId);
    return session ? countOn(session) : () => {};
  }

  protected override came(record: SessionRecord, before?: SessionRecord): void {
    if (before) for (const watcher of this.#watchers) watcher.went(before);
    this.#place(record, true);
    for (const watcher of this.#watchers) watcher.came(record);
  }

  protected override went(record: SessionRecord): void {
    this.placement.remove(record.sessionId);
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
    const before = this.placement.get(record.sessionId)?.state;
    this.placement.put(record, { own, zone: hub?.zone ?? '', draining, quarantined });
    // Those who wait could have taken it already, unless it is better now.
    const better = isNew || !before || before.quarantined !== undefined || (before.draining && !draining);
    if (quarantined === undefined && better) this.#tell(record.tenant, record.hubId);
  }
}

/** Counts a tunnel on a session. @returns a function that undoes it. It lives as long as the tunnel, so its closure holds only the session */
export function countOn(session: Session): () => void {
  session.open++;
  return () => {
    session.open--;
  };
}
