import { adminApi } from '@isthmus/proto/admin';

export type RoleName = 'gateway' | 'hub' | 'agent';

const ROLES: Readonly<Record<number, RoleName>> = {
  [adminApi.Role.ROLE_GATEWAY]: 'gateway',
  [adminApi.Role.ROLE_HUB]: 'hub',
  [adminApi.Role.ROLE_AGENT]: 'agent',
};

export function roleNames(roles: readonly adminApi.Role[]): RoleName[] {
  return roles.flatMap((role) => ROLES[role] ?? []);
}

/** A process of the plane, and where it is asked. */
export interface Member {
  /** Its id in the plane; of a program that stands alone, or that nobody has heard of yet, its address. */
  readonly id: string;
  /** `host:port` of its admin port. */
  readonly address: string;
  /** Empty while it has told none. */
  readonly roles: readonly RoleName[];
  /** Empty unless it is a hub. */
  readonly hubId: string;
  readonly version: string;
  readonly zone: string;
  /** Why nobody can ask it from here; unset for most. */
  readonly unreachable?: string;
}

/** A member that could not be asked, and why. */
export interface Unanswered {
  readonly member: string;
  readonly address: string;
  readonly reason: string;
}

/** What one member said. */
export interface Answer<T> {
  readonly member: Member;
  readonly value: T;
}

/** What all said, and who did not. */
export interface Answers<T> {
  readonly answers: readonly Answer<T>[];
  readonly unanswered: readonly Unanswered[];
}
