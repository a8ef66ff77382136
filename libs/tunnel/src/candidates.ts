import type { Routing } from './attempts.ts';
import type { DialRequest } from './dial.ts';
import type { Route } from './placement.ts';
import type { SessionRecord } from './records.ts';
import type { Strategy } from './strategies.ts';

/** With this strategy, every agent serves every destination. */
const EVERY_AGENT: readonly Strategy[] = ['default'];

const NONE: ReadonlySet<string> = new Set();

/** The sessions that one dial may go through, minus those that it has tried. */
export class Candidates {
  readonly #request: DialRequest;
  readonly #routing: Routing;
  readonly #tried = new Set<string>();

  constructor(request: DialRequest, routing: Routing) {
    this.#request = request;
    this.#routing = routing;
  }

  /** Returns an untried session that is not a suspect; if there is none, an untried suspect. */
  next(): Route | undefined {
    const { hub, suspects } = this.#routing;
    const reachable = (hubId: string) => hub(hubId) !== undefined;
    const answering = (hubId: string) => reachable(hubId) && !suspects.has(hubId);
    return this.#choose(answering, (sessionId) => !suspects.has(sessionId)) ?? this.#choose(reachable, () => true);
  }

  /** Marks a session as tried. */
  take({ sessionId }: SessionRecord): void {
    this.#tried.add(sessionId);
  }

  /** Allows all sessions to be tried again. */
  reset(): void {
    this.#tried.clear();
  }

  /** Whether any session serves the destination, tried or not, reachable or not. */
  get exist(): boolean {
    return this.#routing.directory.choose({ ...this.#choice(), excluded: NONE }) !== undefined;
  }

  /** An untried session. If `next` finds none, the hub of this one cannot be reached. */
  get outOfReach(): SessionRecord | undefined {
    return this.#routing.directory.choose({ ...this.#choice(), excluded: this.#tried })?.record;
  }

  /** Agents that would serve the destination if they were not in quarantine: at most two, tried or not. */
  get quarantined(): readonly string[] {
    return this.#routing.directory.quarantinedFor(this.#choice());
  }

  #choose(hubs: (hubId: string) => boolean, sessions: (sessionId: string) => boolean): Route | undefined {
    const { directory } = this.#routing;
    // Without a usable hub the search would visit every session in vain, and there may be thousands.
    if (!some(directory.hubs(), ({ hubId }) => hubs(hubId))) return undefined;
    const usable = ({ hubId, sessionId }: SessionRecord) => hubs(hubId) && sessions(sessionId);
    return directory.choose({ ...this.#choice(), excluded: this.#tried, usable });
  }

  #choice() {
    const { strategies, zone } = this.#routing;
    const { tenant, destination, agent } = this.#request;
    const choice = { tenant, host: destination.host, strategies, zone };
    return agent === undefined ? choice : { ...choice, strategies: EVERY_AGENT, agent };
  }
}

function some<T>(items: Iterable<T>, holds: (item: T) => boolean): boolean {
  for (const item of items) if (holds(item)) return true;
  return false;
}
