import { isDeepStrictEqual } from 'node:util';
import { getOrPut } from '@isthmus/runtime';
import { type AgentName, agentKey } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import type { Change, HubRecord, Quarantine, SessionRecord, Snapshot } from './registry.ts';

type AgentOfSession = Pick<SessionRecord, 'tenant' | 'agentId' | 'credential'>;

/** The latest statement of an operator about each agent. An earlier one that arrives late is ignored. */
export class Quarantines {
  readonly #byAgent = new Map<string, Quarantine>();
  #inForce = 0;

  get size(): number {
    return this.#inForce;
  }

  /** @returns whether the statement was new */
  apply(quarantine: Quarantine): boolean {
    const key = agentKey(quarantine);
    const known = this.#byAgent.get(key);
    if (known && known.version >= quarantine.version) return false;
    this.#byAgent.set(key, quarantine);
    this.#inForce += count(quarantine) - count(known);
    if (this.#byAgent.size - this.#inForce > DIRECTORY.quarantined) this.#forgetOldest();
    return true;
  }

  /** The quarantine that an agent is in, if any. */
  of(agent: AgentName): Quarantine | undefined {
    const said = this.#inForce === 0 ? undefined : this.#byAgent.get(agentKey(agent));
    return said?.reason === undefined ? undefined : said;
  }

  /** The quarantine that a session's agent is in: by its id, or by the name in its credential, which another id does not change. */
  ofSession(session: AgentOfSession): Quarantine | undefined {
    return this.of(session) ?? this.of(byCredential(session));
  }

  /** The last statement about an agent, even if it was released. */
  last(agent: AgentName): Quarantine | undefined {
    return this.#byAgent.get(agentKey(agent));
  }

  /** The last statement about every agent. */
  all(): Quarantine[] {
    return [...this.#byAgent.values()];
  }

  inForce(): Quarantine[] {
    return this.all().filter(({ reason }) => reason !== undefined);
  }

  /** Forgets the oldest statement about a released agent. */
  #forgetOldest(): void {
    let oldest: Quarantine | undefined;
    for (const said of this.#byAgent.values()) {
      if (said.reason === undefined && (!oldest || said.version < oldest.version)) oldest = said;
    }
    if (oldest) this.#byAgent.delete(agentKey(oldest));
  }
}

function count(quarantine: Quarantine | undefined): number {
  return quarantine?.reason === undefined ? 0 : 1;
}

/** The agent by the name in its credential, if it has one of its own. */
function byCredential({ tenant, agentId, credential = agentId }: AgentOfSession): AgentName {
  return { tenant, agentId: credential };
}

interface HubEntry {
  hub: HubRecord;
  /** By session id. All are of the hub's incarnation. */
  readonly sessions: Map<string, SessionRecord>;
  /** The last snapshot lacked it, so any record of it is later than this one. */
  forgotten: boolean;
}

/**
 * The one copy that a process keeps of its plane: hubs, their sessions, and quarantines. Here are the rules for what a change does to
 * it. Applying a change twice or late changes nothing.
 * - Of two records of a hub, the one with the later incarnation holds. It ends the sessions of the earlier one.
 * - Of two records of a session or a quarantine, the one with the greater version holds. A session without its hub is ignored.
 * - A hub that a snapshot lacks stays, with its sessions, until it is reported gone: a store that was down or emptied lacks hubs that
 *   still run. What such a hub then writes holds, whatever its incarnation and versions, because the store has forgotten the earlier ones.
 * - A hub that writes all its sessions replaces them all, whatever their versions.
 */
export class Replica {
  readonly quarantines = new Quarantines();
  readonly #hubs = new Map<string, HubEntry>();
  /** All hubs, by their ids. */
  readonly known: ReadonlyMap<string, unknown> = this.#hubs;

  *hubs(): Iterable<HubRecord> {
    for (const { hub } of this.#hubs.values()) yield hub;
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#hubs.get(hubId)?.hub;
  }

  *sessions(): Iterable<SessionRecord> {
    for (const { sessions } of this.#hubs.values()) yield* sessions.values();
  }

  sessionsAt(hubId: string): Iterable<SessionRecord> {
    return this.#hubs.get(hubId)?.sessions.values() ?? [];
  }

  snapshot(): Snapshot {
    return { hubs: [...this.hubs()], sessions: [...this.sessions()], quarantines: this.quarantines.all() };
  }

  /** @returns whether the change had an effect */
  apply(change: Change): boolean {
    switch (change.kind) {
      case 'hub':
        return !this.#isOutdated(change.hub) && this.#putHub(change.hub, change.sessions);
      case 'hub-gone':
        return !this.#isOutdated(change) && this.#removeHub(change.hubId);
      case 'session':
        return this.#putSession(change.session);
      case 'session-gone': {
        const held = this.#hubs.get(change.hubId)?.sessions.get(change.sessionId);
        if (!held || held.incarnation > change.incarnation || held.version > change.version) return false;
        return this.#removeSession(held);
      }
      case 'quarantine':
        return this.#quarantine([change.quarantine]);
    }
  }

  /**
   * Takes over a snapshot of the registry. An earlier incarnation of a hub then also replaces a later one: the hub's clock, or the
   * registry, was set back, or what this copy holds was never the hub's.
   * @returns the quarantines that the snapshot lacks, or has an earlier version of
   */
  reset({ hubs, sessions, quarantines }: Snapshot): Quarantine[] {
    this.#quarantine(quarantines);
    for (const entry of this.#hubs.values()) entry.forgotten = true;
    const byHub = new Map<string, SessionRecord[]>();
    for (const session of sessions) getOrPut(byHub, session.hubId, () => []).push(session);
    for (const hub of hubs) this.#putHub(hub, byHub.get(hub.hubId) ?? []);
    const versions = new Map(quarantines.map((each) => [agentKey(each), each.version]));
    return this.quarantines.all().filter((each) => each.version > (versions.get(agentKey(each)) ?? 0));
  }

  /** Called when a session opens or changes. @param before its record until then */
  protected came(_session: SessionRecord, _before?: SessionRecord): void {}

  /** Called when a session closes, also because its hub is gone. */
  protected went(_session: SessionRecord): void {}

  /** Called when a session's hub has changed, or its agent's quarantine. */
  protected moved(_session: SessionRecord): void {}

  #isOutdated({ hubId, incarnation }: Pick<HubRecord, 'hubId' | 'incarnation'>): boolean {
    const held = this.#hubs.get(hubId);
    return held !== undefined && !held.forgotten && held.hub.incarnation > incarnation;
  }

  /** @param sessions all that the hub holds; unset if they did not change */
  #putHub(hub: HubRecord, sessions?: readonly SessionRecord[]): boolean {
    const { hubId, incarnation } = hub;
    if (this.hub(hubId)?.incarnation !== incarnation) this.#removeHub(hubId);
    const held = this.#hubs.get(hubId);
    const entry = held ?? { hub, sessions: new Map<string, SessionRecord>(), forgotten: false };
    if (!held) this.#hubs.set(hubId, entry);
    let changed = !held || !isDeepStrictEqual(held.hub, hub);
    entry.hub = hub;
    entry.forgotten = false;
    if (changed) for (const session of entry.sessions.values()) this.moved(session);
    if (!sessions) return changed;
    const present = new Set(sessions.map(({ sessionId }) => sessionId));
    for (const session of [...entry.sessions.values()]) {
      if (!present.has(session.sessionId)) changed = this.#removeSession(session);
    }
    for (const session of sessions) changed = this.#putSession(session, true) || changed;
    return changed;
  }

  #removeHub(hubId: string): boolean {
    for (const session of [...this.sessionsAt(hubId)]) this.#removeSession(session);
    return this.#hubs.delete(hubId);
  }

  /** @param whole whether it is one of all sessions that the hub wrote, so that an earlier version is no late one */
  #putSession(session: SessionRecord, whole = false): boolean {
    const entry = this.#hubs.get(session.hubId);
    if (entry?.hub.incarnation !== session.incarnation) return false;
    const before = entry.sessions.get(session.sessionId);
    if (before && (whole ? isDeepStrictEqual(before, session) : before.version >= session.version)) return false;
    entry.sessions.set(session.sessionId, session);
    this.came(session, before);
    return true;
  }

  #removeSession(session: SessionRecord): true {
    this.#hubs.get(session.hubId)?.sessions.delete(session.sessionId);
    this.went(session);
    return true;
  }

  /** Scans all sessions once for all statements. Operators make them too rarely to be worth an index by agent. */
  #quarantine(said: readonly Quarantine[]): boolean {
    const agents = new Set(said.filter((each) => this.quarantines.apply(each)).map(agentKey));
    if (agents.size === 0) return false;
    for (const session of this.sessions())
      if (agents.has(agentKey(session)) || agents.has(agentKey(byCredential(session)))) this.moved(session);
    return true;
  }
}
