import type { adminApi } from '@isthmus/proto/admin';

export type Status = adminApi.GetStatusResponse;
export type Members = adminApi.ListMembersResponse;
export type Hub = adminApi.Hub;
export type Session = adminApi.Session;
export type Dial = adminApi.DialRecord;
export type Refusal = adminApi.Refusal;
export type Loss = adminApi.Loss;
export type Tenants = adminApi.ListTenantsResponse;
export type Config = adminApi.GetConfigResponse;

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
  /** How far its clock is ahead of the one here, in milliseconds. */
  readonly aheadMs?: number | undefined;
}

/** What is known of a plane, from the command line or in a browser. */
export interface Evidence {
  readonly members: readonly Witness[];
  /** All of the plane. */
  readonly hubs: readonly Hub[];
  readonly sessions: readonly Session[];
  /** Whether nobody who was asked told of sessions. */
  readonly sessionsUntold?: boolean;
  /** Other clocks: the asker's and the registry's. What agents claim is compared with these and with members', and decides nothing. */
  readonly clocks: readonly { readonly of: string; readonly aheadMs: number; readonly claimed?: true }[];
  /** In milliseconds since the epoch. */
  readonly now: number;
}

/** Whether a member says that the registry does not do its work: what is known of sessions may then be old. */
export function registryFaults({ members }: Evidence): { readonly id: string; readonly detail: string }[] {
  return members.flatMap(({ id, list }) =>
    list?.registry && !list.registry.up ? [{ id, detail: list.registry.detail }] : [],
  );
}
