import { within } from '@isthmus/runtime/testing';
import type {
  Change,
  HubRecord,
  Member,
  Quarantine,
  Registry,
  SessionRecord,
  Snapshot,
  WatchListener,
} from '../registry.ts';
import { Replica } from '../replica.ts';

/** A replica that records which sessions opened, changed and closed. */
class Recorder extends Replica {
  readonly opened: string[] = [];
  readonly closed: string[] = [];

  protected override came({ sessionId }: SessionRecord): void {
    this.opened.push(sessionId);
  }

  protected override went({ sessionId }: SessionRecord): void {
    this.closed.push(sessionId);
  }
}

/** A watcher that keeps a replica from what it receives, as a gateway does, and counts the calls. */
export class Observer implements WatchListener {
  /** Those that had an effect. */
  readonly changes: Change[] = [];
  readonly states: { readonly up: boolean; readonly detail: string }[] = [];
  snapshots = 0;
  answers = 0;
  readonly #replica = new Recorder();
  readonly #stop = new AbortController();
  readonly #checks = new Set<() => void>();

  constructor(registry: Registry) {
    registry.watch(this, this.#stop.signal);
  }

  snapshot(snapshot: Snapshot): Quarantine[] {
    this.snapshots++;
    const missing = this.#replica.reset(snapshot);
    this.#check();
    return missing;
  }

  change(change: Change): void {
    if (this.#replica.apply(change)) this.changes.push(change);
    this.#check();
  }

  hubs(): Iterable<HubRecord> {
    return this.#replica.hubs();
  }

  answered(): void {
    this.answers++;
    this.#check();
  }

  state(up: boolean, detail: string): void {
    this.states.push({ up, detail });
    this.#check();
  }

  get hubIds(): string[] {
    return [...this.hubs()].map(({ hubId }) => hubId).sort();
  }

  hub(hubId: string): HubRecord | undefined {
    return this.#replica.hub(hubId);
  }

  get sessions(): SessionRecord[] {
    return [...this.#replica.sessions()];
  }

  get sessionIds(): string[] {
    return this.sessions.map(({ sessionId }) => sessionId).sort();
  }

  /** The ids of sessions that opened or changed, in order. */
  get opened(): readonly string[] {
    return this.#replica.opened;
  }

  /** The ids of hubs that were reported gone, and then of sessions that closed. */
  get gone(): string[] {
    const hubs = this.changes.flatMap((change) => (change.kind === 'hub-gone' ? [change.hubId] : []));
    return [...hubs, ...this.#replica.closed];
  }

  /** The ids of the agents in quarantine, with the reasons. */
  get quarantined(): Record<string, string | undefined> {
    const byId = (quarantine: Quarantine) => [quarantine.agentId, quarantine.reason] as const;
    return Object.fromEntries(this.#replica.quarantines.inForce().map(byId));
  }

  has(sessionId: string): boolean {
    return this.sessionIds.includes(sessionId);
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Resolves when `holds` returns true. Checks it on every call from the registry, so that it misses no state that passes. */
  async until(what: string, holds: () => boolean): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const check = () => holds() && resolve();
    this.#checks.add(check);
    check();
    try {
      await within(promise, () => `${what}; sessions: ${this.sessionIds.join(' ')}`);
    } finally {
      this.#checks.delete(check);
    }
  }

  #check(): void {
    for (const check of this.#checks) check();
  }
}

/** Returns what a registry holds, as a process finds it that starts now. */
export async function heldBy(registry: Registry): Promise<Snapshot> {
  const stop = new AbortController();
  const { promise, resolve } = Promise.withResolvers<Snapshot>();
  const snapshot = (held: Snapshot) => {
    resolve(held);
    return [];
  };
  registry.watch({ snapshot, change() {}, hubs: () => [], answered() {}, state() {} }, stop.signal);
  try {
    return await within(promise, 'a snapshot');
  } finally {
    stop.abort();
  }
}

export function hubRecord(hubId: string, incarnation = 1, more: Partial<HubRecord> = {}): HubRecord {
  return { hubId, incarnation, peerAddress: `${hubId}:8097`, agentAddress: '', zone: '', draining: false, ...more };
}

export function sessionRecord(
  hub: HubRecord,
  sessionId: string,
  version = 1,
  more: Partial<SessionRecord> = {},
): SessionRecord {
  const { hubId, incarnation } = hub;
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: ['10.0.0.0/8'], defaultRoute: false };
  const agentId = `agent-of-${sessionId}`;
  return {
    sessionId,
    tenant: 'default',
    agentId,
    identifiers,
    hubId,
    incarnation,
    version,
    draining: false,
    since: 1,
    ...more,
  };
}

export function member(memberId: string, more: Partial<Member> = {}): Member {
  const where = { adminAddress: '127.0.0.1:8095', host: 'here', zone: '' };
  return { memberId, roles: ['hub'], ...where, version: '0.1.0', since: 1, ...more };
}
