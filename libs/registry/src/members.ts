import type { Member } from '@isthmus/tunnel';

/** Members in the order in which they are listed: by their ids, and of one id the elder first. */
export function byId(members: Iterable<Member>): Member[] {
  return [...members].sort((a, b) => (a.memberId < b.memberId ? -1 : a.memberId > b.memberId ? 1 : a.since - b.since));
}
