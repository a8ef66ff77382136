import { getOrPut } from '@isthmus/tunnel';
import type { TokenWay } from './issuers.ts';
import { keyText, type TokenKey } from './keys.ts';

/** A key that may have signed a token, and the ways of tenants' files that accept what it signs. */
export interface Candidate {
  readonly key: TokenKey;
  readonly ways: TokenWay[];
}

/** Lists the keys of these ways, each once, until there are more than `most`. */
export function candidatesOf(ways: Iterable<TokenWay>, fits: (key: TokenKey) => boolean, most: number): Candidate[] {
  const found = new Map<string, Candidate>();
  for (const way of ways) {
    for (const key of way.keys) if (fits(key)) getOrPut(found, keyText(key), () => ({ key, ways: [] })).ways.push(way);
    if (found.size > most) break;
  }
  return [...found.values()];
}
