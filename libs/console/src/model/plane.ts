import { cutOff, type Witness } from '@isthmus/findings';
import { Admission, Role } from '@isthmus/proto/admin-enums';
import type { Hub, Member, Quarantined, Session } from '../rpc/messages.ts';

/** A gateway or hub, and what it says of itself. */
export interface Seen extends Witness {
  readonly zone: string;
  /** Where this page reads it: empty for its own member, undefined where no browser here can. */
  readonly origin: string | undefined;
  readonly self: boolean;
}

/** What the page knows of the plane. */
export interface Plane {
  readonly members: readonly Seen[];
  readonly hubs: readonly Hub[];
  readonly sessions: readonly Session[];
  readonly quarantined: readonly Quarantined[];
  /** Why the last look at the page's own member failed. What is shown is then from before. */
  readonly fault: string;
  /** When it was last looked at, in milliseconds since the epoch; 0 before. */
  readonly at: number;
}

export const NOTHING: Plane = {
  members: [],
  hubs: [],
  sessions: [],
  quarantined: [],
  fault: '',
  at: 0,
};

/** `hung`: gateways have no link to the hub, or the member does not answer. `lost`: the plane has forgotten it. */
export type Health = 'well' | 'unready' | 'draining' | 'hung' | 'unseen' | 'lost';

const ROLE_NAMES: Readonly<Record<number, string>> = {
  [Role.ROLE_GATEWAY]: 'gateway',
  [Role.ROLE_HUB]: 'hub',
  [Role.ROLE_AGENT]: 'agent',
};

export function roleNames(roles: readonly number[]): string[] {
  return roles.map((role) => ROLE_NAMES[role] ?? '?');
}

/** Returns where this page can read a member, if it can: loopback addresses are those of each machine. */
export function originOf(
  member: Member,
  own: Member | undefined,
  page: { readonly protocol: string },
): string | undefined {
  if (member.self) return '';
  const loopback = /^(127\.|localhost:|\[::1\])/.test(member.adminAddress);
  const near = loopback ? member.host === own?.host : page.protocol === 'https:';
  const url = `${page.protocol}//${member.adminAddress}`;
  return near && URL.canParse(url) ? new URL(url).origin : undefined;
}

/** The gateways that this page can ask, its own first. */
export function gatewaysOf({ members }: Plane): Seen[] {
  const asked = members.filter(({ roles, status }) => roles.includes('gateway') && status !== undefined);
  return asked.sort((a, b) => Number(b.self) - Number(a.self));
}

/** Whether it says so itself: a hub that has drained is in the registry no more. */
function drains({ status }: Seen): boolean {
  return status?.admission === Admission.ADMISSION_LEAVING || status?.admission === Admission.ADMISSION_DRAINING;
}

/**
 * Says how a hub of the directory is. One that the list of members lacks, as all are while the registry takes no writes, is not asked: only
 * the links tell of it.
 */
export function healthOfHub({ hubId: id, zone }: Hub, plane: Plane): Health {
  const member = plane.members.find((each) => each.id === id);
  const unlisted = { id, roles: ['hub'], zone, version: '', address: '', origin: undefined, self: false, unseen: true };
  return healthOf(member ?? unlisted, plane);
}

/** Says how a member is, by itself and by the gateways' links to it. */
export function healthOf(member: Seen, plane: Plane): Health {
  const hub = plane.hubs.find(({ hubId }) => hubId === member.id);
  if (hub?.draining || drains(member)) return 'draining';
  if (cutOff(member.id, plane.members).length > 0) return 'hung';
  if (!member.status) return member.unseen ? 'unseen' : 'hung';
  return member.status.ready ? 'well' : 'unready';
}
