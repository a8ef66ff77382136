import {
  type Change,
  type HubRecord,
  type Quarantine,
  Quarantines,
  type SessionRecord,
  type Snapshot,
} from '@isthmus/tunnel';

interface HubEntry {
  readonly hub: HubRecord;
  readonly sessions: Map<string, SessionRecord>;
}

/**
 * A copy of the directory, with the rules for applying changes. A change with an earlier incarnation or version than the held record is
 * ignored, and so is a change that was already applied.
 */
export class Copy {
  readonly #hubs = new Map<string, HubEntry>();
  readonly #quarantines = new Quarantines();

  constructor(snapshot?: Snapshot) {
    for (const hub of snapshot?.hubs ?? []) this.apply({ kind: 'hub', hub });
    for (const session of snapshot?.sessions ?? []) this.apply({ kind: 'session', session });
    for (const quarantine of snapshot?.quarantines ?? []) this.#quarantines.apply(quarantine);
  }

  /** Applies a change. Returns whether it changed anything. */
  apply(change: Change): boolean {
    switch (change.kind) {
      case 'hub':
        return this.#putHub(change.hub);
      case 'hub-gone': {
        const held = this.#hubs.get(change.hubId);
        return held !== undefined && held.hub.incarnation <= change.incarnation && this.#hubs.delete(change.hubId);
      }
      case 'session':
        return this.#putSession(change.session);
      case 'session-gone': {
        const sessions = this.#hubs.get(change.hubId)?.sessions;
        const held = sessions?.get(change.sessionId);
        if (!sessions || !held || held.incarnation > change.incarnation || held.version > change.version) return false;
        return sessions.delete(change.sessionId);
      }
      case 'quarantine':
        return this.#quarantines.apply(change.quarantine);
    }
  }

  get quarantines(): Quarantines {
    return this.#quarantines;
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#hubs.get(hubId)?.hub;
  }

  hubIds(): string[] {
    return [...this.#hubs.keys()];
  }

  sessionsOf(hubId: string): SessionRecord[] {
    return [...(this.#hubs.get(hubId)?.sessions.values() ?? [])];
  }

  /**
   * Takes over the hubs, with their sessions, that `other` holds and this copy lacks, and the quarantine records that are later in
   * `other`.
   * @returns the adopted quarantine records
   */
  adopt(other: Copy): Quarantine[] {
    for (const [hubId, entry] of other.#hubs) {
      if (!this.#hubs.has(hubId)) this.#hubs.set(hubId, entry);
    }
    return other.#quarantines.all().filter((each) => this.#quarantines.apply(each));
  }

  snapshot(): Snapshot {
    const entries = [...this.#hubs.values()];
    return {
      hubs: entries.map(({ hub }) => hub),
      sessions: entries.flatMap(({ sessions }) => [...sessions.values()]),
      quarantines: this.#quarantines.all(),
    };
  }

  #putHub(hub: HubRecord): boolean {
    const held = this.#hubs.get(hub.hubId);
    if (held && held.hub.incarnation > hub.incarnation) return false;
    if (held && sameHub(held.hub, hub)) return false;
    const sameIncarnation = held?.hub.incarnation === hub.incarnation;
    this.#hubs.set(hub.hubId, { hub, sessions: sameIncarnation ? held.sessions : new Map() });
    return true;
  }

  #putSession(session: SessionRecord): boolean {
    const entry = this.#hubs.get(session.hubId);
    if (!entry || entry.hub.incarnation !== session.incarnation) return false;
    const held = entry.sessions.get(session.sessionId);
    if (held && held.version >= session.version) return false;
    entry.sessions.set(session.sessionId, session);
    return true;
  }
}

function sameHub(a: HubRecord, b: HubRecord): boolean {
  return (
    a.incarnation === b.incarnation &&
    a.peerAddress === b.peerAddress &&
    a.agentAddress === b.agentAddress &&
    a.zone === b.zone &&
    a.draining === b.draining
  );
}
