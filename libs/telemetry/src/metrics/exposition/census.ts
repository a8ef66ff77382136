import type { Families } from './families.ts';

/** More names than this share one line, whatever the tenants of a plane and the names that hubs gave themselves. */
const MOST_NAMES = 1000;

/** Longer names share that line too. A tenant's name has at most 63 characters. */
const LONGEST_NAME = 128;

/** No tenant has such a name. */
const OTHERS = '(others)';

const REST = `The first ${MOST_NAMES} have a line each; the rest share "${OTHERS}".`;

/** The tenant and hub that something belongs to. */
export interface Placed {
  readonly tenant: string;
  readonly hubId: string;
}

/**
 * Counts something by tenant and by hub. The two counts are separate, since their product would have no bound.
 *
 * The first 1,000 names to arrive have a line each. The others share one line; one of them moves up when one of the first has nothing
 * left. So lines may only be gauges: a counter would lose what has moved up.
 */
export class Census {
  total = 0;
  readonly #tenants = new Map<string, number>();
  readonly #hubs = new Map<string, number>();

  came(placed: Placed): void {
    this.#count(placed, 1);
  }

  went(placed: Placed): void {
    this.#count(placed, -1);
  }

  hubs(): Iterable<readonly [hubId: string, count: number]> {
    return this.#hubs;
  }

  /**
   * Adds the families `tenant_NAME` and `hub_NAME`.
   * @param always tenants that have a line even at zero, so that zero can be told from unknown
   */
  show(families: Families, name: string, what: string, always: () => readonly string[] = () => []): void {
    this.showTenants(families, name, what, always);
    families.tallied('gauge', `hub_${name}`, `Current number of ${what}, by hub. ${REST}`, ['hub'], () =>
      Array.from(bounded(this.#hubs), ([hub, count]) => [{ hub }, count] as const),
    );
  }

  /** Adds only the family `tenant_NAME`, if everything counted has one hub or none. */
  showTenants(families: Families, name: string, what: string, always: () => readonly string[] = () => []): void {
    families.tallied('gauge', `tenant_${name}`, `Current number of ${what}, by tenant. ${REST}`, ['tenant'], () =>
      Array.from(bounded(this.#tenants, always()), ([tenant, count]) => [{ tenant }, count] as const),
    );
  }

  #count({ tenant, hubId }: Placed, by: 1 | -1): void {
    this.total += by;
    add(this.#tenants, tenant, by);
    add(this.#hubs, hubId, by);
  }
}

function add(counts: Map<string, number>, name: string, by: 1 | -1): void {
  const count = (counts.get(name) ?? 0) + by;
  if (count === 0) counts.delete(name);
  else counts.set(name, count);
}

function* bounded(counts: ReadonlyMap<string, number>, always: readonly string[] = []): Iterable<[string, number]> {
  for (const name of always) yield [name, counts.get(name) ?? 0];
  let [named, others] = [always.length, 0];
  for (const [name, count] of counts) {
    if (always.includes(name)) continue;
    if (named === MOST_NAMES || name.length > LONGEST_NAME || name === OTHERS) others += count;
    else {
      named++;
      yield [name, count];
    }
  }
  if (others > 0) yield [OTHERS, others];
}
