import { getOrPut } from '../get-or-put.ts';
import { type Choice, type Place, Placement, type Route } from '../route/placement.ts';
import type { Tier } from '../route/tiers.ts';
import { Arrivals, type Arrived } from './arrivals.ts';
import { Quarantines } from './quarantine.ts';
import type { AgentName, Change, HubRecord, Quarantine, SessionRecord, Snapshot } from './records.ts';

/** Called when a session opens or closes. A changed record counts as a close and an open. */
export interface SessionWatcher {
  came(session: SessionRecord): void;
  went(session: SessionRecord): void;
}

export interface DirectoryOptions {
  /** The hub in this process, if there is one. Its sessions are preferred. */
  readonly ownHub?: string;
  readonly random?: () => number;
}

/**
 * A gateway's copy of the registry: which sessions exist, and which one to use for a destination.
 *
 * Applying a change twice or late changes nothing. For records about the same session or hub, the greater incarnation wins, then the
 * greater version. Sessions of an agent in quarantine are kept, but never chosen.
 */
export class Directory {
  readonly ownHub: string | undefined;
  readonly #hubs = new Map<string, HubRecord>();
  readonly #byHub = new Map<string, Set<string>>();
  readonly #placement: Placement;
  readonly #quarantines = new Quarantines();
  readonly #arrivals = new Arrivals();
  readonly #watchers = new Set<SessionWatcher>();

  constructor({ ownHub, random = Math.random }: DirectoryOptions = {}) {
    this.ownHub = ownHub;
    this.#placement = new Placement(random);
  }

  get size(): number {
    return this.#placement.size;
  }

  hubs(): Iterable<HubRecord> {
    return this.#hubs.values();
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#hubs.get(hubId);
  }

  *sessions(): Iterable<SessionRecord> {
    for (const { record } of this.#placement.routes()) yield record;
  }

  /** Yields the places of a tenant's sessions, with the keys under which each is found. */
  *placed(tenant: string): Iterable<Place> {
    for (const place of this.#placement.places()) if (place.route.record.tenant === tenant) yield place;
  }

  /** The prefix lengths that a tenant's sessions use, longest first, by address family. */
  prefixLengths(tenant: string): Readonly<Record<4 | 6, readonly number[]>> {
    return this.#placement.prefixLengths(tenant);
  }

  apply(change: Change): void {
    switch (change.kind) {
      case 'hub':
        this.#setHub(change.hub);
        return;
      case 'hub-gone': {
        const hub = this.#hubs.get(change.hubId);
        if (hub && hub.incarnation <= change.incarnation) this.#dropHub(change.hubId);
        return;
      }
      case 'session':
        this.#setSession(change.session);
        return;
      case 'session-gone': {
        const known = this.#placement.route(change.sessionId)?.record;
        if (known && !newer(known, change)) this.#remove(change.sessionId);
        return;
      }
      case 'quarantine':
        this.#quarantine([change.quarantine]);
        return;
    }
  }

  /** Replaces everything with a snapshot, except hubs that `keep` accepts (the hub in this process). */
  reset(snapshot: Snapshot, keep: (hubId: string) => boolean = () => false): void {
    const hubs = new Map(snapshot.hubs.map((hub) => [hub.hubId, hub]));
    const sessions = new Set(snapshot.sessions.map((session) => session.sessionId));
    for (const { hubId, incarnation } of [...this.#hubs.values()]) {
      // An earlier incarnation also replaces a known later one: the hub's clock, or the registry, was set back.
      if (hubs.get(hubId)?.incarnation !== incarnation && !keep(hubId)) this.#dropHub(hubId);
    }
    for (const { sessionId, hubId } of [...this.sessions()]) {
      if (!sessions.has(sessionId) && !keep(hubId)) this.#remove(sessionId);
    }
    this.#quarantine(snapshot.quarantines);
    for (const hub of snapshot.hubs) this.#setHub(hub);
    for (const session of snapshot.sessions) this.#setSession(session);
  }

  /** Whether a tenant has any session. */
  serves(tenant: string): boolean {
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
    for (const sessionId of this.#byHub.get(hubId) ?? []) {
      const route = this.#placement.route(sessionId);
      if (route) tenants.add(route.record.tenant);
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
    this.#remove(sessionId);
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

  /** Returns the agents in quarantine, including those without a session. */
  quarantined(): Quarantine[] {
    return this.#quarantines.inForce();
  }

  /** How many sessions are in quarantine, over all tenants. */
  get quarantinedSessions(): number {
    return this.#placement.quarantinedCount;
  }

  /** The quarantine that an agent is in, if any. */
  quarantineOf(agent: AgentName): Quarantine | undefined {
    return this.#quarantines.of(agent);
  }

  /** Returns the ids of at most two agents that would be dialled if they were not in quarantine. */
  quarantinedFor(choice: Omit<Choice, 'zone' | 'excluded' | 'usable' | 'suspected'>): string[] {
    const agents = new Set<string>();
    for (const { record } of this.#placement.quarantined(choice)) {
      if (agents.add(record.agentId).size === 2) break;
    }
    return [...agents];
  }

  /** Scans all sessions once for all statements. Operators make them too rarely to be worth an index by agent. */
  #quarantine(said: readonly Quarantine[]): void {
    const news = said.filter((each) => this.#quarantines.apply(each));
    if (news.length === 0) return;
    const moved = (route: Route) => this.#isQuarantined(route) !== this.#placement.isQuarantined(route);
    for (const route of [...this.#placement.routes()].filter(moved)) this.#place(route);
  }

  #isQuarantined({ record }: Route): boolean {
    return this.#quarantines.of(record) !== undefined;
  }

  #setHub(hub: HubRecord): void {
    const known = this.#hubs.get(hub.hubId);
    if (known && known.incarnation > hub.incarnation) return;
    if (known && known.incarnation < hub.incarnation) this.#dropHub(hub.hubId);
    this.#hubs.set(hub.hubId, hub);
    if (known && known.zone === hub.zone && known.draining === hub.draining) return;
    for (const sessionId of this.#byHub.get(hub.hubId) ?? []) {
      const route = this.#placement.route(sessionId);
      if (route) this.#place(route);
    }
  }

  /** Removes a hub and its sessions. */
  #dropHub(hubId: string): void {
    for (const sessionId of [...(this.#byHub.get(hubId) ?? [])]) this.#remove(sessionId);
    this.#hubs.delete(hubId);
  }

  #setSession(record: SessionRecord): void {
    const hub = this.#hubs.get(record.hubId);
    if (hub && hub.incarnation > record.incarnation) return;
    const known = this.#placement.route(record.sessionId);
    if (known && !newer(record, known.record)) return;
    this.#remove(record.sessionId);
    // Reuse the route object: it counts the tunnels that run through the session.
    const route = known ?? { record, open: 0 };
    route.record = record;
    getOrPut(this.#byHub, record.hubId, () => new Set<string>()).add(record.sessionId);
    this.#place(route);
    for (const watcher of this.#watchers) watcher.came(record);
  }

  #place(route: Route): void {
    const { record } = route;
    const hub = this.#hubs.get(record.hubId);
    const draining = record.draining || (hub?.draining ?? false);
    const quarantined = this.#isQuarantined(route);
    const own = record.hubId === this.ownHub;
    this.#placement.put(route, { own, zone: hub?.zone ?? '', draining, quarantined });
    if (!quarantined) this.#arrivals.tell(record.tenant, record.hubId);
  }

  #remove(sessionId: string): void {
    const record = this.#placement.remove(sessionId)?.record;
    if (!record) return;
    const siblings = this.#byHub.get(record.hubId);
    siblings?.delete(sessionId);
    if (siblings?.size === 0) this.#byHub.delete(record.hubId);
    for (const watcher of this.#watchers) watcher.went(record);
  }
}

/** Whether `a` was written after `b`: by a later incarnation, or by the same one with a greater version. */
function newer(
  a: { readonly incarnation: number; readonly version: number },
  b: { readonly incarnation: number; readonly version: number },
): boolean {
  return a.incarnation > b.incarnation || (a.incarnation === b.incarnation && a.version > b.version);
}
