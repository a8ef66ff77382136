import type { Member } from './records.ts';

/** Returns members in listing order: by id, and the elder first among those with one id. */
export function byId<M extends Member>(members: Iterable<M>): M[] {
  return [...members].sort((a, b) => (a.memberId < b.memberId ? -1 : a.memberId > b.memberId ? 1 : a.since - b.since));
}
