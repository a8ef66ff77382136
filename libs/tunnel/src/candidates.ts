import type { Routing } from './attempts.ts';
import type { DialRequest } from './dial.ts';
import type { Route } from './placement.ts';
import type { SessionRecord } from './records.ts';
import type { Strategy } from './strategies.ts';

/** The strategy by which every agent serves every destination. */
const EVERY_AGENT: readonly Strategy[] = ['default'];

const NONE: ReadonlySet<string> = new Set();

/** The sessions that one dial may go through, less those that it has tried. */
export class Candidates {
  readonly #request: DialRequest;
  readonly #routing: Routing;
  readonly #tried = new Set<string>();

  constructor(request: DialRequest, routing: Routing) {
    this.#request = request;
    this.#routing = routing;
  }

  /** One that is neither tried nor silent, if there is one; of those that are silent, if there is no other. */
  next(): Route | undefined {
    const { hub, suspects } = this.#routing;
    const reachable = (hubId: string) => hub(hubId) !== undefined;
    const answering = (hubId: string) => reachable(hubId) && !suspects.has(hubId);
    return this.#choose(answering, (sessionId) => !suspects.has(sessionId)) ?? this.#choose(reachable, () => true);
  }

  /** It is not to be tried again. */
  take({ sessionId }: SessionRecord): void {
    this.#tried.add(sessionId);
  }

  /** All may be tried again. */
  reset(): void {
    this.#tried.clear();
  }

  /** Whether there is any for the destination, tried or not, in reach or not. */
  get exist(): boolean {
    return this.#routing.directory.choose({ ...this.#choice(), excluded: NONE }) !== undefined;
  }

  /** One that was not tried, whose hub cannot be reached when `next` has none. */
  get outOfReach(): SessionRecord | undefined {
    return this.#routing.directory.choose({ ...this.#choice(), excluded: this.#tried })?.record;
  }

  /** Agents that would serve the destination if they were not in quarantine: two at most, of all. */
  get quarantined(): readonly string[] {
    return this.#routing.directory.quarantinedFor(this.#choice());
  }

  #choose(hubs: (hubId: string) => boolean, sessions: (sessionId: string) => boolean): Route | undefined {
    const { directory } = this.#routing;
    // Without a hub every session would be looked at in vain, and there may be thousands.
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
