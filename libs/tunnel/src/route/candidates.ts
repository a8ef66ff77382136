import { extended } from '@isthmus/runtime';
import type { DialRequest } from '../dial/dial.ts';
import type { SessionRecord } from '../replica/records.ts';
import type { Route } from './placement.ts';
import { ranking } from './ranking.ts';
import type { Routing } from './routing.ts';

const NONE: ReadonlySet<string> = new Set();

/** The sessions that one dial may use, minus those that it has tried. */
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
    const choice = extended(this.#choice(), { excluded: this.#tried });
    return this.#routing.directory.draw(ranking(this.#routing, choice));
  }

  /** Marks a session as tried. */
  markTried({ sessionId }: SessionRecord): void {
    this.#tried.add(sessionId);
  }

  /** Makes all sessions untried again. */
  reset(): void {
    this.#tried.clear();
  }

  /** Whether any session serves the destination, tried or not, reachable or not. */
  get anyServes(): boolean {
    return this.#routing.directory.choose(extended(this.#choice(), { excluded: NONE })) !== undefined;
  }

  /** An untried session, reachable or not. If `next` finds none, the hub of this session cannot be reached. */
  get outOfReach(): SessionRecord | undefined {
    return this.#routing.directory.choose(extended(this.#choice(), { excluded: this.#tried }))?.record;
  }

  /** Agents that would serve the destination if they were not in quarantine: at most two, tried or not. */
  get quarantined(): readonly string[] {
    return this.#routing.directory.quarantinedFor(this.#choice());
  }

  #choice() {
    const { strategies, zone } = this.#routing;
    const { tenant, destination, agent } = this.#request;
    const choice = { tenant, host: destination.host, strategies, zone };
    return agent === undefined ? choice : extended(choice, { agent });
  }
}
