import { isName, parseDestination } from '@isthmus/tunnel';
import { isRecord } from '@isthmus/wire';

/** A hub as agents see it. */
export interface HubMember {
  readonly hubId: string;
  /** `host:port` for agents. Empty if agents reach it only through a load balancer. */
  readonly address: string;
  readonly zone: string;
  readonly draining: boolean;
  /** Identifies the hub's process. A later process has a greater number. */
  readonly generation: number;
}

/**
 * What a hub tells its agents about the plane's hubs: all of them at the start of the link, then changes. Each message confirms
 * everything said before, so an empty change says that nothing changed.
 *
 * `current` says that the registry answers the hub. So the list is up to date, and gateways will hear of a new session.
 */
export type MembershipMessage =
  | { readonly type: 'membership'; readonly current: boolean; readonly hubs: readonly HubMember[] }
  | {
      readonly type: 'membership-change';
      readonly current: boolean;
      readonly changed: readonly HubMember[];
      /** Ids of hubs. */
      readonly gone: readonly string[];
    };

/** How often a hub renews the list, in milliseconds. */
export const MEMBERSHIP_BEAT = 10_000;

/** How long an agent believes the list without a renewal, in milliseconds. Two beats may be late. */
export const MEMBERSHIP_TTL = 3 * MEMBERSHIP_BEAT;

/** Hubs in one message. A longer list continues in changes, so that no line exceeds what the other side reads. */
export const MAX_HUBS_IN_MESSAGE = 128;

/**
 * Returns a membership message with nothing but its own fields, or undefined if it is malformed. `current` and `generation` are
 * optional, because older hubs do not send them.
 */
export function readMembership(value: Readonly<Record<string, unknown>>): MembershipMessage | undefined {
  const { type, current = true, hubs, changed, gone } = value;
  if (typeof current !== 'boolean') return undefined;
  if (type === 'membership') {
    const all = listOf(hubs, readMember);
    return all && { type, current, hubs: all };
  }
  if (type !== 'membership-change') return undefined;
  const members = listOf(changed, readMember);
  const ids = listOf(gone, readId);
  return members && ids && { type, current, changed: members, gone: ids };
}

function listOf<T>(value: unknown, read: (item: unknown) => T | undefined): T[] | undefined {
  if (!Array.isArray(value) || value.length > MAX_HUBS_IN_MESSAGE) return undefined;
  const items: T[] = [];
  for (const item of value) {
    const known = read(item);
    if (known === undefined) return undefined;
    items.push(known);
  }
  return items;
}

function readMember(value: unknown): HubMember | undefined {
  if (!isRecord(value)) return undefined;
  const { hubId, address, zone, draining, generation = 0 } = value;
  if (readId(hubId) === undefined || !isNameOf(address) || !isNameOf(zone)) return undefined;
  if (typeof draining !== 'boolean' || !Number.isSafeInteger(generation)) return undefined;
  if (address !== '' && !isPlace(address)) return undefined;
  return { hubId: hubId as string, address, zone, draining, generation: generation as number };
}

function readId(value: unknown): string | undefined {
  return isNameOf(value) && value !== '' ? value : undefined;
}

function isNameOf(value: unknown): value is string {
  return typeof value === 'string' && isName(value);
}

function isPlace(text: string): boolean {
  try {
    parseDestination(text);
    return true;
  } catch {
    return false;
  }
}
