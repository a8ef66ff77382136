import { Grouped } from '@isthmus/runtime';
import type { PlaneEvents, SessionInfo } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** What happened to an agent's session with this hub, to this gateway's link to a hub, or to the registry. */
export interface SeenEvent {
  readonly type: 'came' | 'drains' | 'went' | 'registry_up' | 'registry_down';
  /** Unset for the registry. */
  readonly role?: 'agent' | 'hub';
  /** Empty but for agents. */
  readonly tenant: string;
  /** Empty for the registry. */
  readonly id: string;
  /** An agent's hub; empty otherwise. */
  readonly hubId: string;
  /** `host:port` from where an agent came, or at which the hub is. Empty for the registry. */
  readonly address: string;
  readonly reason: string;
  /** In milliseconds since the epoch. */
  readonly at: number;
}

/**
 * What came and went in the last hour. Of each agent and hub the last ones are kept, so that one that flaps pushes out no others, and one
 * tenant's agents push out no other tenant's.
 */
export class RecentEvents {
  // Thousands of sessions may go in one tick, and each forgets one.
  readonly #byTenant = new Grouped<SeenEvent>();
  readonly #byPeer = new Grouped<SeenEvent>();

  constructor(events: PlaneEvents) {
    events.on('session:open', (session) => this.#agent('came', session));
    events.on('session:drain', (session) => this.#agent('drains', session));
    events.on('session:close', (session, reason) => this.#agent('went', session, reason));
    events.on('peer:open', (id, address) => this.#hub('came', id, address));
    events.on('peer:close', (id, address, reason) => this.#hub('went', id, address, reason));
    events.on('registry', (state, reason) => {
      this.#keep({ type: `registry_${state}`, tenant: '', id: '', hubId: '', address: '', reason, at: Date.now() });
    });
  }

  /** The oldest first. */
  list(now = Date.now()): SeenEvent[] {
    return [...this.#byTenant.all].filter(({ at }) => now - at < ADMIN.historyMs);
  }

  #agent(type: SeenEvent['type'], session: SessionInfo, reason = ''): void {
    const { tenant, agentId: id, hubId, remote: address } = session;
    this.#keep({ type, role: 'agent', tenant, id, hubId, address, reason, at: Date.now() });
  }

  #hub(type: SeenEvent['type'], id: string, address: string, reason = ''): void {
    this.#keep({ type, role: 'hub', tenant: '', id, hubId: '', address, reason, at: Date.now() });
  }

  #keep(event: SeenEvent): void {
    const kept = { ...event, reason: event.reason.slice(0, ADMIN.keptReason) };
    const peer = peerKey(kept);
    this.#byTenant.add(kept.tenant, kept);
    this.#byPeer.add(peer, kept);
    const own = this.#byPeer.of(peer);
    if (own && own.size > ADMIN.eventsOfOne) this.#forgetOldest(own);
    else if (this.#byTenant.size > ADMIN.events) this.#forgetOldest(this.#byTenant.most);
  }

  #forgetOldest(events: ReadonlySet<SeenEvent> | undefined): void {
    const [oldest] = events ?? [];
    if (!oldest) return;
    this.#byTenant.delete(oldest.tenant, oldest);
    this.#byPeer.delete(peerKey(oldest), oldest);
  }
}

function peerKey({ role, tenant, id }: SeenEvent): string {
  return JSON.stringify([role, tenant, id]);
}
