import { usage } from '../exit.ts';
import type { Member, RoleName } from './member.ts';
import type { Plane } from './plane.ts';

/** Returns the member with that id. @throws Failure that names the known ones */
export function memberOf(plane: Plane, id: string, role?: RoleName): Member {
  const candidates = plane.members.filter(({ roles }) => role === undefined || roles.includes(role));
  const found = candidates.find((member) => member.id === id || member.hubId === id || member.address === id);
  if (found) return found;
  const known = candidates.map((member) => (role === 'hub' && member.hubId) || member.id).join(', ');
  throw usage(
    `there is no ${role ?? 'member'} ${JSON.stringify(id)}; there ${known === '' ? 'is none' : `are ${known}`}`,
  );
}

/**
 * One member that is named, or all with this role: first those at the addresses that were named, in that order.
 * @throws Failure where there is none.
 */
export function membersWith(plane: Plane, role: RoleName, id: string | undefined): readonly Member[] {
  if (id !== undefined) return [memberOf(plane, id, role)];
  const found = plane.members.filter(({ roles }) => roles.includes(role));
  const order = [...plane.addresses];
  const place = ({ address }: Member) => (order.includes(address) ? order.indexOf(address) : order.length);
  if (found.length > 0) return found.sort((a, b) => place(a) - place(b));
  const asked = plane.members.map((member) => `${member.id} (${member.roles.join('+')})`).join(', ');
  throw usage(
    `only a ${role} can answer this, and none is known; asked: ${asked}. Name the admin port of one with --address`,
  );
}
