import { type Choice, type Place, Placement, type Route } from '../route/placement.ts';
import type { Tier } from '../route/tiers.ts';
import { Arrivals, type Arrived } from './arrivals.ts';
import type { AgentName, SessionRecord } from './records.ts';
import { Replica } from './replica.ts';

/** Called when a session opens or closes. A changed record counts as a close and an open. */
export interface SessionWatcher {
  came(session: SessionRecord): void;
  went(session: SessionRecord): void;
  /** Its hub has changed or can be reached again, or its agent's quarantine has changed. */
  changed?(session: SessionRecord): void;
}

export interface DirectoryOptions {
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
  readonly #placement: Placement;
  readonly #arrivals = new Arrivals();
  readonly #watchers = new Set<SessionWatcher>();

  constructor({ ownHub, random = Math.random }: DirectoryOptions = {}) {
    super();
    this.ownHub = ownHub;
    this.#placement = new Placement(random);
  }

  get size(): number {
    return this.#placement.size;
  }

  /** Yields the places of a tenant's sessions, with the keys under which each is found. */
  *placed(tenant: string): Iterable<Place> {
    for (const place of this.#placement.places()) if (place.route.record.tenant === tenant) yield place;
  }

  /** The prefix lengths that a tenant's sessions use, longest first, by address family. */
  prefixLengths(tenant: string): Readonly<Record<4 | 6, readonly number[]>> {
    return this.#placement.prefixLengths(tenant);
  }

  /** Whether a tenant has any session. */
  hasSessions(tenant: string): boolean {
    return this.sessionsOf(tenant) > 0;
  }

  /** How many sessions a tenant has. */
  sessionsOf(tenant: string): number {
    return this.#placement.sessionsOf(tenant);
  }

  /** The tenants that have sessions, and how many. */
  tenants(): Iterable<readonly [tenant: string, sessions: number]> {
    return this.#placement.tenants();
  }

  /** Call this when a hub is reachable again. Waiting dials then treat its sessions as new arrivals. */
  reachable(hubId: string): void {
    const tenants = new Set<string>();
    for (const session of this.sessionsAt(hubId)) {
      tenants.add(session.tenant);
      for (const watcher of this.#watchers) watcher.changed?.(session);
    }
    for (const tenant of tenants) this.#arrivals.tell(tenant, hubId);
  }

  /** Calls back when a tenant gets a session, or one of its hubs is reachable again. @returns a function that stops waiting */
  onArrival(tenant: string, arrived: Arrived): () => void {
    return this.#arrivals.wait(tenant, arrived);
  }

  /** Reports the existing sessions, then every change. @returns a function that stops watching */
  watch(watcher: SessionWatcher): () => void {
    for (const session of this.sessions()) watcher.came(session);
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  /** Removes a session that its hub says does not exist, until the hub announces it again. */
  forget(sessionId: string): void {
    const record = this.#placement.route(sessionId)?.record;
    if (record) this.apply({ kind: 'session-gone', ...record });
  }

  /** The places of an agent's sessions, including those in quarantine. */
  ofAgent(agent: AgentName): Iterable<Place> {
    return this.#placement.ofAgent(agent);
  }

  /** Counts a tunnel through a session. @returns undoes that */
  enter(sessionId: string): () => void {
    const route = this.#placement.route(sessionId);
    if (!route) return () => {};
    route.open++;
    return () => {
      route.open--;
    };
  }

  /** See `Placement`. */
  tiers(choice: Choice): Iterable<Tier> {
    return this.#placement.tiers(choice);
  }

  /** See `Placement`. */
  draw(tiers: Iterable<Tier>): Route | undefined {
    return this.#placement.draw(tiers);
  }

  /** Draws a session to dial through. */
  choose(choice: Choice): Route | undefined {
    return this.draw(this.tiers(choice));
  }

  /** How many sessions are in quarantine, over all tenants. */
  get quarantinedSessions(): number {
    return this.#placement.quarantinedCount;
  }

  /** Returns the ids of at most two agents that would be dialled if they were not in quarantine. */
  quarantinedFor(choice: Omit<Choice, 'zone' | 'excluded' | 'usable' | 'suspected'>): string[] {
    const agents = new Set<string>();
    for (const { record } of this.#placement.quarantined(choice)) {
      if (agents.add(record.agentId).size === 2) break;
    }
    return [...agents];
  }

  protected override came(record: SessionRecord, before?: SessionRecord): void {
    // Reuse the route object: it counts the tunnels that run through the session.
    const route = this.#placement.remove(record.sessionId) ?? { record, open: 0 };
    if (before) for (const watcher of this.#watchers) watcher.went(before);
    route.record = record;
    this.#place(route);
    for (const watcher of this.#watchers) watcher.came(record);
  }

  protected override went(record: SessionRecord): void {
    this.#placement.remove(record.sessionId);
    for (const watcher of this.#watchers) watcher.went(record);
  }

  protected override moved(session: SessionRecord): void {
    const route = this.#placement.route(session.sessionId);
    if (route) this.#place(route);
    for (const watcher of this.#watchers) watcher.changed?.(session);
  }

  #place(route: Route): void {
    const { record } = route;
    const hub = this.hub(record.hubId);
    const draining = record.draining || (hub?.draining ?? false);
    const quarantined = this.quarantines.ofSession(record) !== undefined;
    const own = record.hubId === this.ownHub;
    this.#placement.put(route, { own, zone: hub?.zone ?? '', draining, quarantined });
    if (!quarantined) this.#arrivals.tell(record.tenant, record.hubId);
  }
}
