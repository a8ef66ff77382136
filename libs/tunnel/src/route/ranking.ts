import { extended } from '@isthmus/runtime';
import type { Dial } from '../dial/dial.ts';
import type { Directory } from '../replica/directory.ts';
import type { SessionRecord } from '../replica/records.ts';
import type { Choice } from './placement.ts';
import type { Tier } from './tiers.ts';

/** What decides the ranking of a directory's sessions for a dial. */
export interface RankingOptions {
  readonly directory: Directory;
  /** Returns how to reach a hub: its Dial if it is in this process, or a link to it. Undefined if there is no way at the moment. */
  readonly hub: (hubId: string) => Dial | undefined;
  /** Hubs and sessions that recently did not acknowledge a dial in time. */
  readonly suspects: { has(id: string, tenant: string): boolean };
}

/**
 * Yields the sessions that a dial can reach, best first; suspects come last. A dial uses the first tier that has a session. `explain`
 * shows all tiers.
 */
export function* ranking({ directory, hub, suspects }: RankingOptions, choice: Choice): Generator<Tier> {
  for (const suspected of [false, true]) {
    const takes = (id: string) => suspected || !suspects.has(id, choice.tenant);
    const reachable = (hubId: string) => hub(hubId) !== undefined && takes(hubId);
    // Without a usable hub, the search would visit every session in vain, perhaps thousands.
    if (!some(directory.hubs(), ({ hubId }) => reachable(hubId))) continue;
    const usable = ({ hubId, sessionId }: SessionRecord) => reachable(hubId) && takes(sessionId);
    yield* directory.tiers(extended(choice, { usable, suspected }));
  }
}

function some<T>(items: Iterable<T>, holds: (item: T) => boolean): boolean {
  for (const item of items) if (holds(item)) return true;
  return false;
}
