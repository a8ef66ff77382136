import { type HubMember, MEMBERSHIP_TTL, type MembershipMessage } from '@isthmus/transport';

/** Hubs that an agent believes in, of one link; what a hub tells beyond these is passed over. */
const MAX_HUBS = 1024;

/** What one link told. */
interface View {
  readonly hubs: Map<string, HubMember>;
  current: boolean;
  /** Until when it holds unless it is renewed. */
  until: number;
}

/** One link, as far as it tells of hubs. */
export interface Informant {
  /** @returns hubs that started, again or for the first time, since they were last heard of */
  hear(message: MembershipMessage): readonly HubMember[];
  /** The link has ended. */
  end(): void;
}

/**
 * What an agent believes of its plane's hubs: what all its links say together. When the last link has ended its word holds
 * for the rest of its time, so that the agent finds other hubs by it, and not the configured server alone.
 */
export class Membership {
  readonly #now: () => number;
  readonly #views = new Set<View>();
  /** The latest of each hub. */
  #generations = new Map<string, number>();
  /** What the link that ended last had said. */
  #last: View | undefined;

  /** @param now in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** A new link. */
  informant(): Informant {
    const view: View = { hubs: new Map(), current: false, until: 0 };
    let ended = false;
    return {
      hear: (message) => {
        if (ended) return [];
        this.#views.add(view);
        this.#hear(view, message);
        return this.#fresh();
      },
      end: () => {
        ended = true;
        if (this.#views.delete(view)) this.#last = view;
      },
    };
  }

  /** All hubs; of two words about one, that of the later generation, and of one generation the later word: that it drains. */
  get hubs(): readonly HubMember[] {
    const hubs = new Map<string, HubMember>();
    for (const view of this.#believed()) {
      for (const hub of view.hubs.values()) {
        const known = hubs.get(hub.hubId);
        if (!known || isLater(hub, known)) hubs.set(hub.hubId, hub);
      }
    }
    return [...hubs.values()];
  }

  /** Whether the registry answers every hub that this agent is connected to: then new sessions become known to gateways. */
  get current(): boolean {
    const views = [...this.#views].filter((view) => this.#holds(view));
    return views.length > 0 && views.every(({ current }) => current);
  }

  #hear(view: View, message: MembershipMessage): void {
    view.until = this.#now() + MEMBERSHIP_TTL;
    view.current = message.current;
    if (message.type === 'membership') view.hubs.clear();
    else for (const hubId of message.gone) view.hubs.delete(hubId);
    for (const hub of message.type === 'membership' ? message.hubs : message.changed) {
      if (view.hubs.size < MAX_HUBS || view.hubs.has(hub.hubId)) view.hubs.set(hub.hubId, hub);
    }
  }

  #fresh(): HubMember[] {
    const { hubs } = this;
    const fresh = hubs.filter(({ hubId, generation }) => generation > (this.#generations.get(hubId) ?? -1));
    // Only of hubs that are listed: those that went are forgotten.
    this.#generations = new Map(hubs.map(({ hubId, generation }) => [hubId, generation]));
    return fresh;
  }

  #believed(): View[] {
    const live = [...this.#views].filter((view) => this.#holds(view));
    if (live.length > 0 || !this.#last) return live;
    return this.#holds(this.#last) ? [this.#last] : [];
  }

  #holds({ until }: View): boolean {
    return this.#now() < until;
  }
}

function isLater(a: HubMember, b: HubMember): boolean {
  return a.generation > b.generation || (a.generation === b.generation && a.draining && !b.draining);
}
