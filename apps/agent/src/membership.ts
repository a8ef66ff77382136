import { type HubMember, MEMBERSHIP_TTL, type MembershipMessage } from '@isthmus/transport';

/** Hubs that an agent believes in, of one link; what a hub tells beyond these is passed over. */
const MAX_HUBS = 1024;

/** What one link told. */
interface View {
  readonly hubs: Map<string, HubMember>;
  /** Undefined until it tells. */
  current: boolean | undefined;
  /** Until when it holds unless it is renewed. */
  until: number;
}

/** One link, as far as it tells of hubs. */
export interface Informant {
  /** The link is there and stays. It need not have told anything yet. */
  begin(): void;
  /** @returns hubs that started, again or for the first time, since they were last heard of */
  hear(message: MembershipMessage): readonly HubMember[];
  /** The link has ended. */
  end(): void;
}

/**
 * What an agent believes of its plane's hubs: what all its links say together, each for as long as it is renewed.
 *
 * Addresses outlive that. With nothing left to believe an agent goes on by what was said last, however old: a wrong address
 * costs an attempt, and the configured server alone may be the one that died.
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
    const view: View = { hubs: new Map(), current: undefined, until: 0 };
    let ended = false;
    return {
      begin: () => {
        if (ended || this.#views.has(view)) return;
        view.until = this.#now() + MEMBERSHIP_TTL;
        this.#views.add(view);
      },
      hear: (message) => {
        if (ended) return [];
        this.#views.add(view);
        this.#hear(view, message);
        return this.#fresh();
      },
      end: () => {
        ended = true;
        if (this.#views.delete(view) && view.hubs.size > 0) this.#last = view;
      },
    };
  }

  /** All hubs that are believed in. */
  get hubs(): readonly HubMember[] {
    return merged([...this.#views].filter((view) => this.#holds(view)));
  }

  /** Hubs that may be worth an attempt: those that are believed in, or else those of the last word. */
  get candidates(): readonly HubMember[] {
    const { hubs } = this;
    if (hubs.length > 0) return hubs;
    const last = merged(this.#lastViews);
    // That a hub drained is not believed any longer than the rest: it may have started anew.
    return this.stale ? last.map((hub) => ({ ...hub, draining: false })) : last;
  }

  /** Whether `candidates` are a word whose time is over. */
  get stale(): boolean {
    return this.hubs.length === 0 && !this.#lastViews.some((view) => this.#holds(view));
  }

  /** Whether the registry answers every hub that this agent is connected to: then new sessions become known to gateways. */
  get current(): boolean {
    return this.#views.size > 0 && [...this.#views].every((view) => view.current === true && this.#holds(view));
  }

  /** Whether a hub said that the registry does not answer it, or says nothing any more. One that is yet to tell does not count. */
  get away(): boolean {
    return [...this.#views].some((view) => view.current === false || !this.#holds(view));
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

  /** The links' own, or when none of them ever told, that of the link before. */
  get #lastViews(): View[] {
    const told = [...this.#views].filter(({ hubs }) => hubs.size > 0);
    return told.length === 0 && this.#last ? [this.#last] : told;
  }

  #holds({ until }: View): boolean {
    return this.#now() < until;
  }
}

/** Of two words about one hub, that of the later generation, and of one generation that it drains. */
function merged(views: readonly View[]): HubMember[] {
  const hubs = new Map<string, HubMember>();
  for (const view of views) {
    for (const hub of view.hubs.values()) {
      const known = hubs.get(hub.hubId);
      if (!known || isLater(hub, known)) hubs.set(hub.hubId, hub);
    }
  }
  return [...hubs.values()];
}

function isLater(a: HubMember, b: HubMember): boolean {
  return a.generation > b.generation || (a.generation === b.generation && a.draining && !b.draining);
}
