import { adminApi, type EnumName, namesOf } from '@isthmus/proto/admin';
import type { AskedMember } from '@isthmus/proto/ask';

export type RoleName = EnumName<typeof adminApi.Role, 'ROLE'>;

const ROLES = namesOf(adminApi.Role, 'ROLE');

export function roleNames(roles: readonly adminApi.Role[]): RoleName[] {
  return roles.flatMap((role) => ROLES[role] ?? []);
}

/** A process of the plane, as one that answers says it. Roles are empty until it has reported them. */
export type Member = AskedMember;

/** A member that could not be asked, and why. */
export interface Unanswered {
  readonly member: string;
  readonly address: string;
  readonly reason: string;
}

/** What one member answered. */
export interface Answer<T> {
  readonly member: Member;
  readonly value: T;
  /** When it came, in milliseconds since the epoch by this machine's clock. */
  readonly at?: number;
}

/** All answers, and the members that did not answer. */
export interface Answers<T> {
  readonly answers: readonly Answer<T>[];
  readonly unanswered: readonly Unanswered[];
}

/** What a member reports about itself and the others at first contact. */
export interface Greeting {
  readonly address: string;
  readonly self: AskedMember;
  readonly list: adminApi.ListMembersResponse;
}

/** Returns the members that answered, at the address where they did, and the members that they name. */
export function membersOf(greetings: readonly Greeting[]): Map<string, Member> {
  const members = new Map<string, Member>();
  for (const { address, self } of greetings) if (!members.has(self.id)) members.set(self.id, { ...self, address });
  for (const { memberId: id, adminAddress: address, roles, version, zone } of greetings.flatMap(
    ({ list }) => list.members,
  )) {
    if (members.has(id)) continue;
    members.set(id, { id, address, roles: roleNames(roles), version, zone });
  }
  // While the registry does not answer, links tell of hubs.
  for (const { hubId, zone } of greetings.flatMap(({ list }) => list.hubs))
    if (!members.has(hubId)) members.set(hubId, { id: hubId, address: '', roles: ['hub'], version: '', zone });
  return new Map([...members].sort(([a], [b]) => byName(a, b)));
}

/** Orders names with numbers in them as people count: `hub-2` before `hub-10`. */
export const byName = new Intl.Collator('en', { numeric: true }).compare;

/** Stands among those that did not answer, with no address. It is no member. */
export const REGISTRY = 'Redis';

export function isMember({ member, address }: Unanswered): boolean {
  return member !== REGISTRY || address !== '';
}

/** Reports that nobody knows the other members. Only Redis has the list. */
export function blindness(greetings: readonly Greeting[]): Unanswered[] {
  const errors = greetings.map(({ list }) => list.membersError);
  // A member that has the list has all of it.
  if (errors.some((error) => error === '')) return [];
  const remembered = greetings.some(({ list }) => list.members.length > 0);
  const unknown = remembered ? 'members that joined or left since its last answer' : 'the list of other members';
  const reason = `cannot get ${unknown} (${errors[0]}): name the others with --address`;
  return [{ member: REGISTRY, address: '', reason }];
}
