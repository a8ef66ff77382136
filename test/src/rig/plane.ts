import type { AddressInfo } from 'node:net';
import { type RedisServer, type RedisServerOptions, startRedis } from '@isthmus/directory/testing/servers';
import { adminApi } from '@isthmus/proto/admin';
import {
  agentMember,
  balance,
  type Flags,
  freePort,
  gatewayMember,
  holdMember,
  hubMember,
  isUp,
  Member,
  type MemberSettings,
  newTrust,
  type Place,
  peer,
  peerFlags,
  type Relay,
  relayTo,
  type Scope,
  serverMember,
  type Trust,
  times,
  until,
  uplinkFlags,
  type Ways,
} from '../harness/index.ts';

/** Only warnings. With a line for each of 200 dials a second at three programs, a rig would measure the reader of the logs. */
const QUIET = { v: 1 };

const LOCAL = '127.0.0.1';

/** The default of the agents' `--session-count`. */
const SESSIONS = 2;

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
  readonly doors: readonly Ways[];
  /** Whether `isthmus hold` is the only door, whichever gateway is behind it. */
  readonly held?: boolean;
  carried(): Promise<readonly Carried[]>;
  /** What the plane still lacks (a process, a session, a link); undefined if it is whole. */
  missing(): Promise<string | undefined>;
}

export interface PlaneOptions {
  /** All-in-one servers `server-0` and up, in the place of hubs and gateways. One alone has no registry. */
  readonly servers?: number;
  /** Default 3 and 2. */
  readonly hubs?: number;
  readonly gateways?: number;
  /** Our agents; default 4. */
  readonly agents?: number;
  /** Agents that run the published Go modules; each has a session to every hub. */
  readonly goAgents?: number;
  /** Whether callers dial one `isthmus hold`, which prefers the first gateway. */
  readonly held?: boolean;
  /** Links that run through a relay, for network faults between the two ends. */
  readonly relays?: readonly ('peer' | 'agent')[];
  /** Added to the flags of hubs and gateways alike. */
  readonly planeFlags?: Flags;
  readonly gatewayFlags?: Flags;
  /** @param ports of hubs, for agents */
  readonly agentFlags?: (index: number, ports: readonly number[]) => Flags | Promise<Flags>;
  /** How a member runs, by its id, if not as others do. */
  readonly each?: (id: string) => MemberSettings;
  /** Sessions of each of our agents; default 2, as the agent's. */
  readonly sessionCount?: number;
  /** URL of a registry that already runs; default: the plane's own Redis. */
  readonly registryUrl?: string;
  /** Where the first hub runs, if not beside the others. Agents then learn of it from the others. */
  readonly firstHub?: HubPlace;
  readonly trust?: Trust;
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

/** Gateways, hubs and agents, mTLS on every link. */
export interface Plane extends Topology {
  readonly trust: Trust;
  /** All-in-one servers are both. */
  readonly gateways: readonly Member[];
  readonly hubs: readonly Member[];
  /** Those that shall be there, ours first: a row takes out what leaves for good. */
  readonly agents: Member[];
  /** Ports of the hubs for agents. */
  readonly agentPorts: readonly number[];
  /** Relays of each hub, by its index. */
  readonly relays: readonly HubRelays[];
}

/** A member that accepts callers, and one that accepts agents. */
interface Front {
  readonly member: Member;
  readonly ways: Ways;
}
interface Back {
  readonly member: Member;
  readonly agentPort: number;
  readonly relays?: HubRelays;
}

/** Starts a plane. Its gateways and hubs are ready, or up if there are no agents. */
export async function startPlane(scope: Scope, options: PlaneOptions = {}): Promise<Plane> {
  const trust = options.trust ?? (await newTrust(scope));
  const { fronts, backs } = await startServers(scope, trust, options);
  const agentPorts = backs.map(({ agentPort }) => agentPort);
  const agents = await startAgents(scope, trust, options, agentPorts);
  const gateways = fronts.map(({ member }) => member);
  const hubs = options.servers ? gateways : backs.map(({ member }) => member);
  const ready = ({ program }: Member) => (agents.length > 0 ? program.waitReady() : isUp(program));
  await Promise.all([...new Set([...hubs, ...gateways])].map(ready));
  const ways = fronts.map((front) => front.ways);
  const hold = options.held ? await holdMember(scope, trust, ways, QUIET) : undefined;
  const plane: Plane = {
    trust,
    gateways,
    hubs,
    agents,
    agentPorts,
    relays: backs.map(({ relays = {} }) => relays),
    doors: hold ? [hold.ways] : ways,
    held: hold !== undefined,
    carried: () => carriedBy(gateways),
    missing: async () =>
      (await missingIn(plane, options.sessionCount ?? SESSIONS)) ??
      (hold && (await linksMissing(hold.member, gateways.length))),
  };
  return plane;
}

/** Flags of a member, with those that it alone has, and where it runs. */
function settingsOf({ each }: PlaneOptions, id: string, flags: Flags): MemberSettings {
  const special = each?.(id);
  return { ...special, flags: { ...flags, ...special?.flags } };
}

async function startServers(scope: Scope, trust: Trust, options: PlaneOptions) {
  const { servers = 0, hubs = 3, gateways = 2, registryUrl, planeFlags, gatewayFlags } = options;
  const url = servers === 1 ? undefined : (registryUrl ?? (await redisFor(scope)).url);
  const common = { ...QUIET, ...(url !== undefined && { 'redis-url': url, plane: 'rig' }), ...planeFlags };
  if (servers > 0) {
    const both = await times(servers, (index) => {
      const id = `server-${index}`;
      return serverMember(scope, trust, id, settingsOf(options, id, { 'server-id': id, ...common }));
    });
    return { fronts: both as readonly Front[], backs: both as readonly Back[] };
  }
  const backs = await times(hubs, (index) => hubOf(scope, trust, index, common, options));
  const flags = { ...common, ...gatewayFlags };
  const fronts = await times(gateways, (index) =>
    gatewayOf(scope, trust, index, settingsOf(options, `gateway-${index}`, flags)),
  );
  return { fronts, backs };
}

async function startAgents(scope: Scope, trust: Trust, options: PlaneOptions, ports: readonly number[]) {
  const { agents = 4, goAgents = 0, sessionCount = SESSIONS, agentFlags, firstHub } = options;
  const near = firstHub ? ports.slice(1) : ports;
  const ours = await times(agents, async (index) => {
    const id = `agent-${index}`;
    const special = await agentFlags?.(index, ports);
    const flags = { ...QUIET, 'agent-id': id, 'session-count': sessionCount, ...special };
    return agentMember(scope, trust, id, near[index % near.length] as number, settingsOf(options, id, flags));
  });
  return [...ours, ...(goAgents > 0 ? await startGoAgents(scope, trust, goAgents, ports) : [])];
}

/** Starts a Redis that stops with the scope. */
export async function redisFor(scope: Scope, options: RedisServerOptions = {}): Promise<RedisServer> {
  const redis = await startRedis(options);
  scope.defer(() => redis.stop());
  return redis;
}

async function hubOf(scope: Scope, trust: Trust, index: number, common: Flags, options: PlaneOptions): Promise<Back> {
  const { relays: relayed = [], firstHub } = options;
  const far = index === 0 ? firstHub : undefined;
  const [port, peerPort] = [await freePort(), await freePort()];
  const relays: HubRelays = {
    ...(relayed.includes('peer') && { peer: await relayTo(scope, peerPort) }),
    ...(relayed.includes('agent') && { agent: await relayTo(scope, port) }),
  };
  const id = `hub-${index}`;
  const { peer = LOCAL, agent = LOCAL } = far ?? {};
  const own = {
    ...(await peerFlags(trust, ['hub'])),
    'server-id': id,
    'agent-port': port,
    'agent-bind-address': agent,
    'peer-port': peerPort,
    'peer-bind-address': peer,
    'advertise-address': relays.peer?.authority ?? `${peer}:${peerPort}`,
    'advertise-agent-address': relays.agent?.authority ?? `${agent}:${port}`,
  };
  const apart = far && { 'redis-url': far.registryUrl, ...(await adminFlags(trust, far)) };
  const settings = settingsOf(options, id, { ...own, ...common, ...apart });
  const { member } = await hubMember(scope, trust, id, { ...settings, ...(far && { place: far }) });
  return { member, relays, agentPort: relays.agent?.port ?? port };
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
  return await gatewayMember(scope, trust, id, { ...where, flags: { ...own, ...flags } });
}

/** They connect through a load balancer, as upstream's agents do to reach every server. */
async function startGoAgents(scope: Scope, trust: Trust, count: number, ports: readonly number[]): Promise<Member[]> {
  const backends = ports.map((port) => ({ host: LOCAL, port }));
  const balancer = await balance(scope, { host: LOCAL, port: 0 }, backends);
  const { port } = balancer.address() as AddressInfo;
  return await times(count, async (index) => {
    const { healthPort, ...uplink } = await uplinkFlags(trust, port);
    const id = `go-agent-${index}`;
    const flags = { ...uplink, 'agent-id': id, 'sync-forever': true };
    return new Member(scope, { id, runs: [await peer(), 'agent'], flags, healthPort });
  });
}

async function carriedBy(gateways: readonly Member[]): Promise<Carried[]> {
  const lists = await Promise.all(
    gateways.map(async (member, gateway) => {
      const tunnels = member.running ? await member.tunnels() : [];
      // An all-in-one server also lists what its hub carries for callers of other servers.
      const own = tunnels.filter(({ role }) => role === adminApi.Role.ROLE_GATEWAY);
      return own.map((each) => ({ ...each, gateway, tunnel: tunnelNumber(each.destination) }));
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
async function missingIn({ gateways, hubs, agents }: Plane, perAgent: number): Promise<string | undefined> {
  const ended = [...gateways, ...hubs, ...agents].find(({ running }) => !running);
  if (ended) return await ended.epitaph();
  // A server also lists what others hold.
  const own = async (hub: Member) => (await hub.sessions()).filter(({ hubId }) => hubId === hub.id);
  const held = (await Promise.all(hubs.map(own))).flat();
  for (const { id } of agents) {
    const reached = new Set(held.filter(({ agentId }) => agentId === id).map(({ hubId }) => hubId)).size;
    const wanted = id.startsWith('go-') ? hubs.length : Math.min(perAgent, hubs.length);
    if (reached < wanted) return `${id} has sessions to ${reached} hubs`;
  }
  for (const gateway of gateways) {
    const known = new Set((await gateway.sessions()).map(({ sessionId }) => sessionId));
    const unknown = held.filter(({ sessionId }) => !known.delete(sessionId));
    if (unknown.length > 0) return `${gateway.id} does not know a session of ${unknown[0]?.agentId}`;
    if (known.size > 0) return `${gateway.id} knows ${known.size} sessions that no hub holds`;
    const links = await gateway.value('isthmus_hub_links');
    const others = hubs.filter((hub) => hub !== gateway).length;
    if (links !== others) return `${gateway.id} has ${links} of ${others} links`;
  }
  return undefined;
}

/** Waits until a plane lacks nothing. */
export async function whole(plane: Topology): Promise<void> {
  let missing: string | undefined;
  const isWhole = async () => {
    missing = await plane.missing();
    return !missing;
  };
  await until(isWhole, { what: () => `a whole plane: ${missing}` });
}

async function linksMissing(hold: Member, wanted: number): Promise<string | undefined> {
  if (!hold.running) return await hold.epitaph();
  const { body } = await hold.program.get('/readyz?verbose');
  return body.includes(`${wanted} can be reached`) ? undefined : `${hold.id} has not all links: ${body}`;
}
