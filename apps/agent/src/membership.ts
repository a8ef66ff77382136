import { type HubMember, MEMBERSHIP_TTL, type MembershipMessage } from '@isthmus/transport';

/** Most hubs that an agent remembers of one link. Further ones are ignored. */
const MAX_HUBS = 1024;

/** What one link reported. */
interface View {
  readonly hubs: Map<string, HubMember>;
  /** Undefined until the first report. */
  current: boolean | undefined;
  /** When it expires unless it is renewed. */
  until: number;
}

/** A link, as a source of hubs. */
export interface Informant {
  /** Call when the link is up and stays. It need not have reported anything yet. */
  begin(): void;
  /** Returns the hubs that have started, again or for the first time, since the last report of them. */
  hear(message: MembershipMessage): readonly HubMember[];
  /** Call when the link has ended. */
  end(): void;
}

/**
 * What an agent knows about its plane's hubs: the reports of all its links together, each as long as it is renewed.
 *
 * Addresses outlive that. If every report has expired, the agent uses the last one, however old: a wrong address costs an attempt, and
 * the configured server alone may be the one that died.
 */
export class Membership {
  readonly #now: () => number;
  readonly #views = new Set<View>();
  /** The latest report of each hub. */
  #generations = new Map<string, number>();
  /** The report of the link that ended last. */
  #last: View | undefined;

  /** @param now in milliseconds */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** Adds a link. */
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

  /** All hubs whose reports have not expired. */
  get hubs(): readonly HubMember[] {
    return merged([...this.#views].filter((view) => this.#holds(view)));
  }

  /** Hubs that are worth an attempt: those whose reports have not expired, or else those of the last report. */
  get candidates(): readonly HubMember[] {
    const { hubs } = this;
    if (hubs.length > 0) return hubs;
    const last = merged(this.#lastViews);
    // That a hub drained expires like everything else: it may have restarted.
    return this.stale ? last.map((hub) => ({ ...hub, draining: false })) : last;
  }

  /** Whether `candidates` are an expired report. */
  get stale(): boolean {
    return this.hubs.length === 0 && !this.#lastViews.some((view) => this.#holds(view));
  }

  /** Whether the registry answers every hub that this agent is connected to. Gateways then learn of new sessions. */
  get current(): boolean {
    return this.#views.size > 0 && [...this.#views].every((view) => view.current === true && this.#holds(view));
  }

  /**
   * Whether a hub reported that the registry does not answer it, or reports nothing any longer. One that has not reported yet does not
   * count.
   */
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
    // Only for hubs that are listed: others are forgotten.
    this.#generations = new Map(hubs.map(({ hubId, generation }) => [hubId, generation]));
    return fresh;
  }

  /** The link's own report, or that of the link before if no link has reported. */
  get #lastViews(): View[] {
    const told = [...this.#views].filter(({ hubs }) => hubs.size > 0);
    return told.length === 0 && this.#last ? [this.#last] : told;
  }

  #holds({ until }: View): boolean {
    return this.#now() < until;
  }
}

/** Of two reports about a hub, the later generation counts; within a generation, draining counts. */
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
