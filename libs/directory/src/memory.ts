import type { AgentName } from '@isthmus/tunnel';
import { DIRECTORY } from './defaults.ts';
import {
  byId,
  type Change,
  checkQuarantine,
  type HubRecord,
  type HubRegistration,
  type Member,
  type MemberEntry,
  type PresentMember,
  QuarantineFull,
  type Registry,
  type SessionRecord,
  type StateListener,
  type WatchListener,
} from './registry.ts';
import { Replica } from './replica.ts';

/** Returns the registry of a plane with one process. A hub stays until it closes, and nothing needs to expire. */
export function memoryRegistry(): Registry {
  return new MemoryRegistry();
}

class MemoryRegistry implements Registry {
  readonly #replica = new Replica();
  readonly #registrations = new Map<string, HubRegistration & { supersede(by: HubRecord): void }>();
  readonly #members = new Set<Member>();
  readonly #watchers = new Set<(change: Change) => void>();

  register(hub: HubRecord, state?: StateListener): HubRegistration {
    const held = this.#replica.hub(hub.hubId)?.incarnation ?? 0;
    const later = held > hub.incarnation ? { ...hub, incarnation: held + 1 } : hub;
    const registration = this.#registration(later, state);
    this.#registrations.get(hub.hubId)?.supersede(later);
    this.#registrations.set(hub.hubId, registration);
    this.#publish({ kind: 'hub', hub: later });
    if (state) queueMicrotask(() => state(true, 'registered in memory'));
    return registration;
  }

  #registration(hub: HubRecord, state: StateListener | undefined) {
    const { hubId, incarnation } = hub;
    const { promise, resolve } = Promise.withResolvers<HubRecord>();
    let ended = false;
    const write = (change: Change) => ended || this.#publish(change);
    return {
      superseded: promise,
      announce: (session: SessionRecord) => void write({ kind: 'session', session: { ...session, incarnation } }),
      withdraw: (sessionId: string, version: number) =>
        void write({ kind: 'session-gone', sessionId, hubId, incarnation, version }),
      drain: () => void write({ kind: 'hub', hub: { ...hub, draining: true } }),
      async close() {
        write({ kind: 'hub-gone', hubId, incarnation });
        ended = true;
      },
      supersede(later: HubRecord) {
        if (ended) return;
        ended = true;
        const detail = `hub ${hubId} has a later incarnation than ${incarnation}: this one stops writing`;
        queueMicrotask(() => state?.(false, detail));
        resolve(later);
      },
    };
  }

  /** Calls the listener in microtasks: in order, and never from within the call that caused the change. */
  watch(listener: WatchListener, signal: AbortSignal): void {
    if (signal.aborted) return;
    const tell = (task: () => void) => queueMicrotask(() => signal.aborted || task());
    const watcher = (change: Change) => tell(() => listener.change(change));
    const snapshot = this.#replica.snapshot();
    tell(() => listener.state(true, 'in memory'));
    tell(() => listener.snapshot(snapshot));
    this.#watchers.add(watcher);
    signal.addEventListener('abort', () => this.#watchers.delete(watcher), { once: true });
  }

  join(member: Member): MemberEntry {
    const own = { ...member };
    this.#members.add(own);
    return { close: async () => void this.#members.delete(own) };
  }

  async members(): Promise<readonly PresentMember[]> {
    return byId([...this.#members].map((member) => ({ ...member, quietMs: 0 })));
  }

  async quarantine({ tenant, agentId }: AgentName, reason: string | undefined): Promise<boolean> {
    checkQuarantine({ tenant, agentId }, reason);
    const { quarantines } = this.#replica;
    const said = quarantines.last({ tenant, agentId });
    if (said?.reason === reason) return false;
    const isNew = reason !== undefined && said?.reason === undefined;
    const ofTenant = quarantines.inForce().filter((each) => each.tenant === tenant).length;
    if (isNew && ofTenant >= 2 * DIRECTORY.quarantined - quarantines.size) throw new QuarantineFull(tenant);
    const version = Math.max(Date.now(), (said?.version ?? 0) + 1);
    const quarantine = { tenant, agentId, version, ...(reason !== undefined && { reason }) };
    this.#publish({ kind: 'quarantine', quarantine });
    return true;
  }

  async close(): Promise<void> {
    this.#members.clear();
    for (const registration of this.#registrations.values()) await registration.close();
    this.#watchers.clear();
  }

  #publish(change: Change): void {
    if (!this.#replica.apply(change)) return;
    for (const watcher of this.#watchers) watcher(change);
  }
}
