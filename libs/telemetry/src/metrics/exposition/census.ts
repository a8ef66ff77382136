import type { Families } from './families.ts';

/** Only this many names get a line of their own, however many tenants a plane has and whatever names hubs choose. */
const MOST_NAMES = 1000;

/** Longer names share the line of the others. A tenant's name has at most 63 characters. */
const LONGEST_NAME = 128;

/** The shared line. No tenant can have this name. */
const OTHERS = '(others)';

const REST = `The first ${MOST_NAMES} have a line each; the rest share "${OTHERS}".`;

/** The tenant and hub that something belongs to. */
export interface Placed {
  readonly tenant: string;
  readonly hubId: string;
}

/**
 * Counts something by tenant and by hub. The two counts are separate, since the number of pairs would have no bound.
 *
 * The first 1,000 names have a line each. The others share one line. When one of the first drops to zero, one of the others gets its
 * line. So the lines must be gauges: the counter of the others would drop then.
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

  /** Adds only the family `tenant_NAME`, for things that have one hub or none. */
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
