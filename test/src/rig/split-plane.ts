import { startRedis } from '@isthmus/directory/testing/servers';
import { adminApi } from '@isthmus/proto/admin';
import {
  agentMember,
  type Flags,
  freePort,
  gatewayMember,
  hubMember,
  isUp,
  type Member,
  type MemberSettings,
  newTrust,
  type Place,
  peerFlags,
  type Relay,
  relayTo,
  type Scope,
  type Trust,
  times,
} from '../harness/index.ts';
import { type Door, doorOf } from './door.ts';

/** Only warnings. With a line for each of 200 dials a second at three programs, a rig would measure the reader of the logs. */
export const QUIET = { v: 1 };

const LOCAL = '127.0.0.1';

/** A long tunnel of a load, as listed by a gateway. */
export interface Carried {
  readonly tunnel: number;
  /** The index of that gateway among the plane's. Its door has the same, unless the plane is held. */
  readonly gateway: number;
  readonly hubId: string;
  readonly agentId: string;
}

/** What a load runs against. */
export interface Topology {
  /** Where callers dial. There is one for each gateway. */
  readonly doors: readonly Door[];
  /** Whether `isthmus hold` is the only door, whichever gateway is behind it. */
  readonly held?: boolean;
  carried(): Promise<readonly Carried[]>;
  /** What the plane still lacks (a process, a session, a link); undefined if it is whole. */
  missing(): Promise<string | undefined>;
}

/** How a member runs, if not as others do. */
export type As = (id: string) => Pick<MemberSettings, 'env' | 'place'>;

export interface SplitPlaneOptions {
  readonly hubs?: number;
  readonly gateways?: number;
  readonly agents?: number;
  /** Links that run through a relay, for network faults between the two ends. */
  readonly relays?: readonly ('peer' | 'agent')[];
  /** Added to the flags of hubs and gateways alike. */
  readonly planeFlags?: Flags;
  readonly hubFlags?: Flags;
  readonly gatewayFlags?: Flags;
  readonly agentFlags?: (index: number) => Flags;
  /** Sessions of each agent; default 2, as the agent's. */
  readonly sessionCount?: number;
  /** URL of a registry that already runs; default: the plane's own Redis. */
  readonly registryUrl?: string;
  /** Where the first hub runs, if not beside the others. Agents then learn of it from the others. */
  readonly firstHub?: HubPlace;
  readonly as?: As;
}

/** A place with its own address for each kind of link. */
export interface HubPlace extends Place {
  readonly peer: string;
  readonly agent: string;
  /** The registry's URL, as seen from there. */
  readonly registryUrl: string;
}

export interface HubRelays {
  readonly peer?: Relay;
  readonly agent?: Relay;
}

interface HubSettings extends Pick<MemberSettings, 'env' | 'place'> {
  /** The links that run through a relay. */
  readonly relayed: ReadonlySet<string>;
  /** Where it runs, if not beside the others. */
  readonly far?: HubPlace | undefined;
  readonly flags: Flags;
}

/** Gateways, hubs and agents around a Redis, mTLS on every link. */
export interface SplitPlane extends Topology {
  readonly trust: Trust;
  readonly gateways: readonly Member[];
  readonly hubs: readonly Member[];
  /** Those that shall be there: a row takes out what leaves for good. */
  readonly agents: Member[];
  /** Ports of the hubs for agents. */
  readonly agentPorts: readonly number[];
  /** Relays of each hub, by its index. */
  readonly relays: readonly HubRelays[];
}

/** Three hubs, two gateways and four agents with two sessions each, all ready; without agents, up. */
export async function splitPlane(scope: Scope, options: SplitPlaneOptions = {}): Promise<SplitPlane> {
  const { sessionCount = 2, firstHub, as = () => ({}) } = options;
  const trust = await newTrust(scope);
  const relayed = new Set(options.relays);
  const url = options.registryUrl ?? (await ownRedis(scope));
  const common = { ...QUIET, 'redis-url': url, plane: 'rig', ...options.planeFlags };
  const built = await times(options.hubs ?? 3, (index) => {
    const far = index === 0 ? firstHub : undefined;
    const flags = { ...common, ...options.hubFlags, ...(far && { 'redis-url': far.registryUrl }) };
    return hubOf(scope, trust, index, { relayed, far, flags, ...as(`hub-${index}`) });
  });
  const fronts = await times(options.gateways ?? 2, (index) =>
    gatewayOf(scope, trust, index, { flags: { ...common, ...options.gatewayFlags }, ...as(`gateway-${index}`) }),
  );
  const agents = await times(options.agents ?? 4, (index) => {
    const near = firstHub ? built.slice(1) : built;
    const { agentPort } = near[index % near.length] as { agentPort: number };
    const flags = { ...QUIET, 'session-count': sessionCount, ...options.agentFlags?.(index) };
    return agentOf(scope, trust, index, agentPort, { flags, ...as(`agent-${index}`) });
  });
  const [hubs, gateways] = [built.map(({ hub }) => hub), fronts.map(({ gateway }) => gateway)];
  const up = ({ program }: Member) => (agents.length > 0 ? program.waitReady() : isUp(program));
  await Promise.all([...hubs, ...gateways, ...agents].map(up));
  const plane = {
    trust,
    gateways,
    hubs,
    agents,
    agentPorts: built.map(({ agentPort }) => agentPort),
    relays: built.map(({ relays }) => relays),
    doors: fronts.map(({ door }) => door),
    carried: () => carriedBy(gateways),
    missing: () => missingIn(plane, sessionCount),
  };
  return plane;
}

export async function ownRedis(scope: Scope): Promise<string> {
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  return redis.url;
}

async function hubOf(scope: Scope, trust: Trust, index: number, { relayed, far, flags, ...where }: HubSettings) {
  const [port, peerPort] = [await freePort(), await freePort()];
  const relays: HubRelays = {
    ...(relayed.has('peer') && { peer: await relayTo(scope, peerPort) }),
    ...(relayed.has('agent') && { agent: await relayTo(scope, port) }),
  };
  const id = `hub-${index}`;
  const { peer = LOCAL, agent = LOCAL } = far ?? {};
  const own = {
    ...(await peerFlags(trust, ['hub'])),
    ...(far && (await adminFlags(trust, far))),
    'server-id': id,
    'agent-port': port,
    'agent-bind-address': agent,
    'peer-port': peerPort,
    'peer-bind-address': peer,
    'advertise-address': relays.peer?.authority ?? `${peer}:${peerPort}`,
    'advertise-agent-address': relays.agent?.authority ?? `${agent}:${port}`,
  };
  const settings = { ...where, ...(far && { place: far }), flags: { ...own, ...flags } };
  const { member: hub } = await hubMember(scope, trust, id, settings);
  return { hub, relays, agentPort: relays.agent?.port ?? port };
}

/** Of a hub on another machine, whose health and admin ports are reached over the network. */
async function adminFlags(trust: Trust, { host }: HubPlace): Promise<Flags> {
  // The admin port shows this certificate, and so do we when we ask there.
  const { cert, key } = await trust.peers.server({
    hosts: [{ type: 'dns', value: 'isthmus-admin' }],
    uses: ['server', 'client'],
  });
  return {
    'health-bind-address': host,
    'admin-bind-address': host,
    'admin-server-cert': cert,
    'admin-server-key': key,
    'admin-ca-cert': trust.peers.cert,
  };
}

export async function gatewayOf(scope: Scope, trust: Trust, index: number, { flags, ...where }: MemberSettings) {
  const id = `gateway-${index}`;
  const own = { ...(await peerFlags(trust)), 'server-id': id };
  const { member: gateway, ways } = await gatewayMember(scope, trust, id, { ...where, flags: { ...own, ...flags } });
  return { gateway, door: doorOf(ways) };
}

export function agentOf(
  scope: Scope,
  trust: Trust,
  index: number,
  port: number,
  { flags, ...where }: MemberSettings,
): Promise<Member> {
  const id = `agent-${index}`;
  return agentMember(scope, trust, id, port, { ...where, flags: { 'agent-id': id, ...flags } });
}

export async function carriedBy(gateways: readonly Member[]): Promise<Carried[]> {
  const lists = await Promise.all(
    gateways.map(async (member, gateway) => {
      const tunnels = member.running ? await member.tunnels() : [];
      // An all-in-one server also lists what its hub carries for callers of other servers.
      const own = tunnels.filter(({ role }) => role === adminApi.Role.ROLE_GATEWAY);
      return own.map(({ destination, hubId, agentId }) => ({
        gateway,
        hubId,
        agentId,
        tunnel: tunnelNumber(destination),
      }));
    }),
  );
  return lists.flat().filter(({ tunnel }) => tunnel >= 0);
}

/** Returns the number of the long tunnel to this destination, 127.0.1.(n + 1); -1 for any other destination. */
function tunnelNumber(destination: string): number {
  return Number(/^127\.0\.1\.(\d+):/.exec(destination)?.[1] ?? 0) - 1;
}

/**
 * Every gateway must know the sessions that hubs hold, and each agent must have as many as it wants. An agent may have more for a
 * while: a session that it moves away from stays until its last tunnel ends.
 */
async function missingIn({ gateways, hubs, agents }: SplitPlane, perAgent: number): Promise<string | undefined> {
  const ended = [...gateways, ...hubs, ...agents].find(({ running }) => !running);
  if (ended) return await ended.epitaph();
  const held = (await Promise.all(hubs.map((hub) => hub.sessions()))).flat();
  for (const { id } of agents) {
    const reached = new Set(held.filter(({ agentId }) => agentId === id).map(({ hubId }) => hubId)).size;
    if (reached < Math.min(perAgent, hubs.length)) return `${id} has sessions to ${reached} hubs`;
  }
  for (const gateway of gateways) {
    const known = new Set((await gateway.sessions()).map(({ sessionId }) => sessionId));
    const unknown = held.filter(({ sessionId }) => !known.delete(sessionId));
    if (unknown.length > 0) return `${gateway.id} does not know a session of ${unknown[0]?.agentId}`;
    if (known.size > 0) return `${gateway.id} knows ${known.size} sessions that no hub holds`;
    const links = await gateway.value('isthmus_hub_links');
    if (links !== hubs.length) return `${gateway.id} has ${links} of ${hubs.length} links`;
  }
  return undefined;
}
