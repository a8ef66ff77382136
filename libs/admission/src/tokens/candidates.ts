import { getOrPut } from '@isthmus/tunnel';
import type { TokenWay } from './issuers.ts';
import { keyText, type TokenKey } from './keys.ts';

/**
 * The most keys of one tenant that are tried for a token, of those with its key id, or of all if it has none. A rotation needs two or three.
 * The bound is each tenant's own: what another tenant lists uses up none of it.
 */
const MOST_OF_TENANT = 4;

/** The same where the tenant is known by the server name, port or `--tenant` that the agent used: then no other tenant's keys are tried. */
const MOST_OF_KNOWN_TENANT = 8;

/** The most tenants whose keys are tried for a token. A verification takes up to 0.2 ms, and anyone may send tokens. */
const MOST_TENANTS = 8;

/** A key that may have signed a token, and the ways of tenants' files that accept what it signs. */
export interface Candidate {
  readonly key: TokenKey;
  readonly ways: TokenWay[];
}

/**
 * Lists the keys of these ways, each once. Undefined: there are keys of more tenants than are tried.
 * @param known whether the ways are of one tenant, which the agent's way to the hub has chosen
 */
export function candidatesOf(
  ways: Iterable<TokenWay>,
  fits: (key: TokenKey) => boolean,
  known: boolean,
): Candidate[] | undefined {
  const found = new Map<string, Candidate>();
  const left = new Map<string, number>();
  const tenants = new Set<string>();
  for (const way of ways) {
    let more = left.get(way.tenant) ?? (known ? MOST_OF_KNOWN_TENANT : MOST_OF_TENANT);
    for (const key of more > 0 ? way.keys : []) {
      if (!fits(key)) continue;
      const { ways: accepting } = getOrPut(found, keyText(key), () => ({ key, ways: [] }));
      // Tenants that share a key cost one verification together.
      if (accepting.length === 0 && tenants.add(way.tenant).size > MOST_TENANTS) return undefined;
      accepting.push(way);
      if (--more === 0) break;
    }
    left.set(way.tenant, more);
  }
  return [...found.values()];
}
