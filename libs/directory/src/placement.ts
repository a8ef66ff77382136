import { deleteFrom, getOrPut, isIP, RandomSet } from '@isthmus/runtime';
import { type AgentIdentifiers, isNetwork } from '@isthmus/tunnel';
import ipaddr from 'ipaddr.js';
import type { SessionRecord } from './registry.ts';

/** How a gateway finds the agents for a destination (upstream's `--proxy-strategies`), tried in the order given. */
export const STRATEGIES = ['default', 'destHost', 'defaultRoute', 'destCIDR'] as const;
export type Strategy = (typeof STRATEGIES)[number];

/** Prefix lengths in use, longest first, by address family. */
type PrefixLengths = Readonly<Record<4 | 6, readonly number[]>>;

/**
 * Returns the keys under which a session is found. A session's keys come from its identifiers, a destination's keys from the strategies,
 * and equal keys match. The key of a prefix holds its length and network, so a longest-prefix match costs one look-up for each
 * length in use, however many prefixes there are.
 */
export function sessionKeys(identifiers: AgentIdentifiers): string[] {
  const keys = new Set<string>(['any']);
  if (identifiers.defaultRoute) keys.add('default-route');
  for (const host of [...identifiers.host, ...identifiers.ipv4, ...identifiers.ipv6])
    keys.add(`host ${canonicalHost(host)}`);
  for (const cidr of identifiers.cidr) {
    if (!isNetwork(cidr)) continue;
    const [address, bits] = ipaddr.parseCIDR(cidr);
    keys.add(prefixKey(address, bits));
  }
  return [...keys];
}

/** Returns the prefix length in a key of `sessionKeys`, or undefined if the key has none. */
export function prefixLength(key: string): { family: 4 | 6; bits: number } | undefined {
  const match = /^cidr([46])\/(\d+) /.exec(key);
  return match ? { family: Number(match[1]) as 4 | 6, bits: Number(match[2]) } : undefined;
}

/**
 * Returns the keys that a destination looks up under one strategy, best first. Strategies see only the destination. Zones order the
 * sessions that they find.
 */
export function destinationKeys(strategy: Strategy, host: string, lengths: PrefixLengths): string[] {
  switch (strategy) {
    case 'default':
      return ['any'];
    case 'defaultRoute':
      return ['default-route'];
    case 'destHost':
      return [`host ${canonicalHost(host)}`];
    case 'destCIDR': {
      const canonical = canonicalHost(host);
      if (isIP(canonical) === 0) return [];
      const address = ipaddr.parse(canonical);
      return lengths[address.kind() === 'ipv4' ? 4 : 6].map((bits) => prefixKey(address, bits));
    }
  }
}

/** Whether some strategy finds such an agent because of the host, and not as it finds every agent. */
export function serves(identifiers: AgentIdentifiers, host: string): boolean {
  const keys = sessionKeys(identifiers);
  const lengths: Record<4 | 6, number[]> = { 4: [], 6: [] };
  for (const key of keys) {
    const prefix = prefixLength(key);
    if (prefix) lengths[prefix.family].push(prefix.bits);
  }
  return STRATEGIES.some(
    (strategy) => strategy !== 'default' && destinationKeys(strategy, host, lengths).some((key) => keys.includes(key)),
  );
}

/** Returns a host's canonical form: IPv4-mapped IPv6 as IPv4, IPv6 shortened and without zone, names in lower case. */
export function canonicalHost(host: string): string {
  if (isIP(host) === 0) return host.toLowerCase().replace(/\.$/, '');
  return ipaddr.process(host.replace(/%.*$/s, '')).toString();
}

function prefixKey(address: ipaddr.IPv4 | ipaddr.IPv6, bits: number): string {
  const bytes = address.toByteArray();
  const network = bytes.map((byte, index) => byte & (0xff00 >> Math.min(8, Math.max(0, bits - 8 * index))) & 0xff);
  return `cidr${bytes.length === 4 ? 4 : 6}/${bits} ${network.join('.')}`;
}

/** Returns a key as agent identifiers have it: `10.0.0.0/8`, or a host without the leading `host `. */
export function keyText(key: string): string {
  const prefix = prefixLength(key);
  if (!prefix) return key.replace(/^host /, '');
  const bytes = key
    .slice(key.indexOf(' ') + 1)
    .split('.')
    .map(Number);
  return `${ipaddr.fromByteArray(bytes)}/${prefix.bits}`;
}

/** What decides how much a session is preferred. */
export interface SessionState {
  /** Its hub runs in this process. */
  readonly own: boolean;
  /** Its hub's. Agents have zones too, but no gateway knows them. */
  readonly zone: string;
  /** Dials use the session only if there is no other. */
  readonly draining: boolean;
  /** Why its agent is in quarantine, so that no dial uses the session. Undefined if it is not. */
  readonly quarantined: string | undefined;
}

/** A session as a gateway sees it. */
export interface Session {
  /** The latest record. */
  record: SessionRecord;
  /** Of the latest record, and of what the directory knows of its hub and agent. */
  state: SessionState;
  /** The keys under which it is found. */
  keys: readonly string[];
  /** Open tunnels and pending dials of this gateway through the session. */
  open: number;
}

/** The hub in this process. */
export const OWN = Symbol('own');
export const DRAINING = Symbol('draining');

/** A part of a pool: the zone of the sessions' hubs, `OWN` or `DRAINING`. */
type Part = string | typeof OWN | typeof DRAINING;

/** Sessions under one key, grouped by preference. There may be a pool for each session, so it has no empty part. */
export class Pool extends Map<Part, RandomSet<Session>> {
  /** Of hubs in other zones than this one, a set for each zone. */
  beyond(zone: string): RandomSet<Session>[] {
    return [...this]
      .filter(([part]) => part !== OWN && part !== DRAINING && part !== zone)
      .map(([, sessions]) => sessions);
  }

  put(session: Session): void {
    getOrPut(this, partOf(session.state), () => new RandomSet<Session>()).add(session);
  }

  remove(session: Session): void {
    deleteFrom(this, partOf(session.state), session);
  }
}

/** Returns the part of a pool to which a session belongs. */
function partOf({ draining, own, zone }: SessionState): Part {
  if (draining) return DRAINING;
  return own ? OWN : zone;
}
