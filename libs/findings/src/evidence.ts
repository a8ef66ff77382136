import type { adminApi } from '@isthmus/proto/admin';

/** A message as the console's JSON has it: 64-bit integers are numbers, because all are times and counts below 2^53. */
export type Json<T> = T extends bigint
  ? number
  : T extends readonly (infer E)[]
    ? Json<E>[]
    : T extends object
      ? { readonly [K in keyof T]: Json<T[K]> }
      : T;

export type Status = Json<adminApi.GetStatusResponse>;
export type Members = Json<adminApi.ListMembersResponse>;
export type Hub = Json<adminApi.Hub>;
export type Session = Json<adminApi.Session>;
export type Dial = Json<adminApi.DialRecord>;
export type Refusal = Json<adminApi.Refusal>;
export type FailingDials = Json<adminApi.FailingDials>;
export type Loss = Json<adminApi.Loss>;
export type Tenants = Json<adminApi.ListTenantsResponse>;
export type Config = Json<adminApi.GetConfigResponse>;

/** Returns a message of the RPC as the console's JSON has it. */
export function asJson<T>(message: T): Json<T> {
  const plain = (value: unknown): unknown => {
    if (typeof value === 'bigint') return Number(value);
    if (Array.isArray(value)) return value.map(plain);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
  };
  return plain(message) as Json<T>;
}

/** A member of a plane, and what it answered. */
export interface Witness {
  readonly id: string;
  /** `host:port` of its admin port; empty if it is not known. */
  readonly address: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly status?: Status | undefined;
  /** What it says of the plane. */
  readonly list?: Members | undefined;
  readonly tenants?: Tenants | undefined;
  readonly config?: Config | undefined;
  /** Why it says nothing. */
  readonly silent?: string | undefined;
  /** It cannot be asked from here, which says nothing about it. */
  readonly unseen?: boolean;
  /** How far its clock is ahead of the one here, in milliseconds. */
  readonly aheadMs?: number | undefined;
}

/** What is known of a plane, from the command line or in a browser. */
export interface Evidence {
  readonly members: readonly Witness[];
  /** All of the plane. */
  readonly hubs: readonly Hub[];
  readonly sessions: readonly Session[];
  /** Other clocks: of the one who asks, and of the registry. */
  readonly clocks: readonly { readonly of: string; readonly aheadMs: number }[];
  /** In milliseconds since the epoch. */
  readonly now: number;
}

/** Whether a member says that the registry does not do its work: what is known of sessions may then be old. */
export function registryFaults({ members }: Evidence): { readonly id: string; readonly detail: string }[] {
  return members.flatMap(({ id, list }) =>
    list?.registry && !list.registry.up ? [{ id, detail: list.registry.detail }] : [],
  );
}
