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

/** Whether a program takes new dials and sessions. */
export type AdmissionName = 'open' | 'leaving' | 'draining';

const ADMISSIONS: Readonly<Record<number, AdmissionName>> = {
  [adminApi.Admission.ADMISSION_OPEN]: 'open',
  [adminApi.Admission.ADMISSION_LEAVING]: 'leaving',
  [adminApi.Admission.ADMISSION_DRAINING]: 'draining',
};

/** Returns undefined for a program of an earlier version, which does not say. */
export function admissionName({ admission }: adminApi.GetStatusResponse): AdmissionName | undefined {
  return ADMISSIONS[admission];
}

/** A process of the plane, and the address to ask it. */
export interface Member {
  /** Its id in the plane, or its address if it stands alone or has not answered yet. */
  readonly id: string;
  /** `host:port` of its admin port. */
  readonly address: string;
  /** Empty until it has reported its roles. */
  readonly roles: readonly RoleName[];
  /** Empty unless it is a hub. */
  readonly hubId: string;
  readonly version: string;
  readonly zone: string;
  /** Why it cannot be asked from here; unset for most. */
  readonly unreachable?: string;
}

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
}

/** All answers, and the members that did not answer. */
export interface Answers<T> {
  readonly answers: readonly Answer<T>[];
  readonly unanswered: readonly Unanswered[];
}
