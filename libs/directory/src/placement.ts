import { countIn, deleteFrom, getOrPut, isIP, RandomSet } from '@isthmus/runtime';
import { type AgentIdentifiers, type AgentName, agentKey, isNetwork } from '@isthmus/tunnel';
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
function sessionKeys(identifiers: AgentIdentifiers): string[] {
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
function prefixLength(key: string): { family: 4 | 6; bits: number } | undefined {
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
  return ipaddr.process(host.replace(/%.*$/, '')).toString();
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
interface SessionState {
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
  /** Whether other zones than this one have sessions. */
  isBeyond(zone: string): boolean {
    return this.size > Number(this.has(OWN)) + Number(this.has(DRAINING)) + Number(this.has(zone));
  }

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

/** What is found of a tenant. */
interface Tenant {
  sessions: number;
  readonly pools: Map<string, Pool>;
  /** Sessions in quarantine, which are in no pool, by the same keys. */
  readonly quarantined: Map<string, Set<Session>>;
  /** How many sessions use a prefix length, by address family. */
  readonly lengths: Record<4 | 6, Map<number, number>>;
  /** The lengths in use, longest first. */
  readonly longestFirst: Record<4 | 6, readonly number[]>;
}

/**
 * Sessions, indexed by tenant, by what they can reach and by preference, so that a dial finds its session without visiting the
 * others.
 */
export class Placement {
  readonly #sessions = new Map<string, Session>();
  readonly #tenants = new Map<string, Tenant>();
  readonly #byAgent = new Map<string, Set<Session>>();

  get size(): number {
    return this.#sessions.size;
  }

  get(sessionId: string): Session | undefined {
    return this.#sessions.get(sessionId);
  }

  /** Yields a tenant's sessions, including those in quarantine. Visits those of all tenants. */
  *of(tenant: string): Generator<Session> {
    for (const session of this.#sessions.values()) if (session.record.tenant === tenant) yield session;
  }

  /** An agent's sessions, including those in quarantine. */
  ofAgent(agent: AgentName): Iterable<Session> {
    return this.#byAgent.get(agentKey(agent)) ?? [];
  }

  /** Open tunnels and pending dials of this gateway through a session's agent, over all hubs. */
  loadOf({ record }: Session): number {
    let open = 0;
    for (const sibling of this.ofAgent(record)) open += sibling.open;
    return open;
  }

  /** What a tenant has; nothing without sessions. */
  ofTenant(tenant: string): Omit<Tenant, 'lengths'> {
    return this.#tenants.get(tenant) ?? NOTHING;
  }

  /** How many sessions a tenant has, including those in quarantine. */
  sessionsOf(tenant: string): number {
    return this.ofTenant(tenant).sessions;
  }

  /** How many sessions are in quarantine, over all tenants. */
  get quarantinedSessions(): number {
    let count = 0;
    for (const { quarantined } of this.#tenants.values()) count += quarantined.get('any')?.size ?? 0;
    return count;
  }

  /** The tenants that have sessions, and how many. */
  *tenants(): Iterable<readonly [tenant: string, sessions: number]> {
    for (const [tenant, { sessions }] of this.#tenants) yield [tenant, sessions];
  }

  /** Adds a session, or changes the one with the same id, which keeps its count of tunnels. */
  put(record: SessionRecord, state: SessionState): void {
    const { sessionId, identifiers } = record;
    const session = this.remove(sessionId) ?? { record, state, keys: [], open: 0 };
    session.record = record;
    session.state = state;
    session.keys = sessionKeys(identifiers);
    this.#sessions.set(sessionId, session);
    const tenant = getOrPut(this.#tenants, record.tenant, emptyTenant);
    for (const key of session.keys) {
      if (state.quarantined !== undefined) getOrPut(tenant.quarantined, key, () => new Set<Session>()).add(session);
      else getOrPut(tenant.pools, key, () => new Pool()).put(session);
      countLength(tenant, key, 1);
    }
    tenant.sessions++;
    getOrPut(this.#byAgent, agentKey(record), () => new Set<Session>()).add(session);
  }

  /** @returns the removed session, if there was one */
  remove(sessionId: string): Session | undefined {
    const session = this.#sessions.get(sessionId);
    if (!session) return undefined;
    const { record, state, keys } = session;
    this.#sessions.delete(sessionId);
    const tenant = this.#tenants.get(record.tenant) as Tenant;
    for (const key of keys) {
      const pool = tenant.pools.get(key);
      pool?.remove(session);
      if (pool?.size === 0) tenant.pools.delete(key);
      if (state.quarantined !== undefined) deleteFrom(tenant.quarantined, key, session);
      countLength(tenant, key, -1);
    }
    tenant.sessions--;
    if (tenant.sessions === 0) this.#tenants.delete(record.tenant);
    deleteFrom(this.#byAgent, agentKey(record), session);
    return session;
  }
}

function emptyTenant(): Tenant {
  return {
    sessions: 0,
    pools: new Map(),
    quarantined: new Map(),
    lengths: { 4: new Map(), 6: new Map() },
    longestFirst: { 4: [], 6: [] },
  };
}

const NOTHING = emptyTenant();

function countLength(tenant: Tenant, key: string, by: 1 | -1): void {
  const prefix = prefixLength(key);
  if (!prefix) return;
  const { family, bits } = prefix;
  const lengths = tenant.lengths[family];
  const count = countIn(lengths, bits, by);
  if (count === (by === 1 ? 1 : 0)) tenant.longestFirst[family] = [...lengths.keys()].sort((a, b) => b - a);
}
