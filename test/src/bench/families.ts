import {
  AS_IN_IMAGE,
  agentMember,
  callersAt,
  commandOf,
  type Env,
  type Flags,
  isUp,
  type Member,
  type MemberSettings,
  newTrust,
  type ProgramName,
  relayTo,
  type Scope,
  serverMember,
  tempDir,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { type Door, doorOf } from '../rig/door.ts';
import type { Groups } from '../rig/load/messages.ts';
import { type SplitPlane, type SplitPlaneOptions, splitPlane } from '../rig/split-plane.ts';
import { tenantsPlane } from '../rig/tenants-plane.ts';
import { Fleet } from '../scale/fleet.ts';
import type { FloorSettings } from './floor.ts';

/** Processes between callers and the destination, started together. They may not be ready yet. */
export interface Started {
  /** Where callers connect: the door of a plane, or the first relay's port. */
  readonly door?: Door;
  readonly port?: number;
  /** Where a second tenant's callers connect. */
  readonly floodDoor?: Door;
  readonly groups: Groups;
  ready(): Promise<void>;
}

/** @returns a function that starts the processes. Everything they need is prepared before, so that only their own time counts */
export type Family = (scope: Scope, destinationPort: number, agents?: number) => Promise<() => Promise<Started>>;

/** A chain of relays, each in its own process. */
export function relays(count: number): Family {
  return async (scope, destinationPort) => async () => {
    let to = destinationPort;
    const groups: Record<string, number[]> = {};
    for (let index = count; index > 0; index--) {
      const { port, pid } = await listening(scope, 'bench/relay.ts', { argument: String(to) });
      groups[`relay-${index}`] = [pid];
      to = port;
    }
    return { port: to, groups, ready: async () => {} };
  };
}

/**
 * One process with the sockets of a dial, and nothing else (floor.ts).
 * @param onward whether it connects to the destination; otherwise it only accepts, and answers itself
 */
export function floor(way: 'connect' | 'mtls', onward: boolean, node = process.execPath): Family {
  return async (scope, destinationPort) => {
    const trust = await newTrust(scope);
    const { ways } = await callersAt(trust, `${trust.dir}/callers.sock`);
    const { cert, key } = await trust.callers.server();
    const listen = way === 'connect' ? { path: ways.connect.uds } : { cert, key, ca: trust.callers.cert };
    const settings: FloorSettings = { listen, ...(onward && { to: destinationPort }) };
    return async () => {
      const options = { argument: JSON.stringify(settings), command: [node] };
      const { port, pid } = await listening(scope, 'bench/floor.ts', options);
      return {
        door: doorOf({ ...ways, mtls: { ...ways.mtls, port } }),
        groups: { floor: [pid] },
        ready: async () => {},
      };
    };
  };
}

/** An all-in-one server and an agent on another Node, with the image's options. */
export function onNode(node: string): Family {
  return (scope) => inOne({ node }, scope);
}

/** An all-in-one server and an agent with mTLS between them, or simulated agents instead of the real one. */
export const allInOne: Family = (scope, _destinationPort, agents) => inOne({ agents }, scope);

const WITHOUT_RESUME = { 'resume-timeout': 0 };

/** Half of the round-trip time of a long link, in milliseconds. */
const FAR_MS = 50;

/** A relay to the destination that is far away. */
export const farRelay: Family = async (scope, destinationPort) => async () => {
  return { port: await farTo(scope, destinationPort), groups: {}, ready: async () => {} };
};

/** An all-in-one server whose agent is far away. */
export const farAgent: Family = (scope) => inOne({ way: (port) => farTo(scope, port) }, scope);

async function farTo(scope: Scope, port: number): Promise<number> {
  const relay = await relayTo(scope, port);
  relay.delayMs = FAR_MS;
  return relay.port;
}

/** The same with traces, sampled as given, for a collector beside it; without a sampler, no traces at all. */
export function traced(sampler?: 'always_on' | 'always_off'): Family {
  return async (scope) => {
    if (sampler === undefined) return inOne({ env: { OTEL_SDK_DISABLED: 'true' } }, scope);
    const { port } = await listening(scope, 'bench/collector.ts');
    const endpoint = `http://127.0.0.1:${port}`;
    return inOne({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER: sampler } }, scope);
  };
}

/** The same without resume: tunnels end with the link that carries them. */
export const withoutResume: Family = (scope) => inOne({ flags: WITHOUT_RESUME }, scope);
export const farWithoutResume: Family = (scope) =>
  inOne({ flags: WITHOUT_RESUME, way: (port) => farTo(scope, port) }, scope);

/** Upstream's programs. */
export interface AnpBinaries {
  readonly server: string;
  readonly agent: string;
}

/** An all-in-one server with upstream's agent. */
export function goAgent({ agent }: AnpBinaries): Family {
  return (scope) => inOne({ anp: { agent } }, scope);
}

/** Upstream's pair. Its server accepts callers in one way only: over gRPC or CONNECT, on a unix socket or over TCP. */
export function anpPair(anp: AnpBinaries, protocol: 'grpc' | 'connect' | 'mtls'): Family {
  const own = protocol === 'mtls' ? { 'uds-name': undefined } : OVER_UDS;
  return (scope) => inOne({ anp, serverFlags: { ...own, mode: protocol === 'grpc' ? 'grpc' : 'http-connect' } }, scope);
}

/** Where an agent runs, and the address at which it reaches the server here. */
export interface Far {
  /** Runs another command there: `ip netns exec ...`. */
  readonly command: readonly string[];
  readonly outside: string;
}

/** An all-in-one server here, and its agent behind a path; ours or upstream's. Callers come by CONNECT. */
export function overPath(far: Far, anp?: AnpBinaries): Family {
  return (scope) => inOne({ far, ...(anp && { anp, serverFlags: { ...OVER_UDS, mode: 'http-connect' } }) }, scope);
}

const OVER_UDS: Flags = {
  'server-port': 0,
  'server-bind-address': undefined,
  'server-cert': undefined,
  'server-key': undefined,
  'server-ca-cert': undefined,
};

/** Those of an agent's intervals that the harness shortens: the defaults are measured. */
const INTERVALS: Flags = { 'sync-interval': undefined, 'sync-interval-cap': undefined, 'probe-interval': undefined };

interface InOne {
  /** The Node that runs the programs, if not the one that runs the bench. */
  readonly node?: string;
  /** Programs in the place of ours. */
  readonly anp?: Partial<AnpBinaries>;
  readonly env?: Env;
  /** Added to the flags of both. */
  readonly flags?: Flags;
  readonly serverFlags?: Flags;
  /** How many simulated agents replace the real one. */
  readonly agents?: number | undefined;
  /** Returns the port through which the agent reaches the server's port. */
  readonly way?: (port: number) => Promise<number>;
  readonly far?: Far;
}

async function inOne(options: InOne, scope: Scope): ReturnType<Family> {
  const { node, anp = {}, env = {}, flags = {}, serverFlags = {}, agents, way, far } = options;
  const trust = await newTrust(scope);
  const runs = (name: ProgramName, program?: string) =>
    program === undefined ? commandOn(node, name) : ([program] as const);
  const late = (id: string, command?: readonly string[]) =>
    ({ late: true, ...measured(trust.dir, env, command)(id) }) as const;
  const place = far && (await trust.agents.server({ hosts: [{ type: 'ip', value: far.outside }] }));
  const outside = place && { 'agent-bind-address': far?.outside, 'cluster-cert': place.cert, 'cluster-key': place.key };
  const { member, agentPort, ways } = await serverMember(scope, trust, 'server', {
    ...late('server'),
    runs: runs('proxy-server', anp.server),
    flags: { ...outside, ...flags, ...serverFlags },
  });
  const door = doorOf(ways);
  const ready = () => member.program.waitReady();
  if (agents !== undefined) {
    const tls = { ca: trust.agents.cert, ...(await trust.agents.client('agent')) };
    return async () => {
      await isUp(member.begin());
      const fleet = scope.use(new Fleet({ hubPorts: [agentPort], tls, sessionCount: 1, rebalanceTime: 600_000 }));
      fleet.grow(agents);
      await fleet.complete();
      return { door, groups: groupsOf({ server: [member] }), ready };
    };
  }
  const agent = await agentMember(scope, trust, 'agent', way ? await way(agentPort) : agentPort, {
    ...late('agent', far?.command),
    runs: runs('proxy-agent', anp.agent),
    flags: { ...INTERVALS, ...(far && { 'proxy-server-host': far.outside }), ...flags },
  });
  return async () => {
    for (const each of [member, agent]) each.begin();
    return { door, groups: groupsOf({ server: [member], agent: [agent] }), ready };
  };
}

/** Returns a program's command, on another Node if one is named. */
function commandOn(node: string | undefined, name: ProgramName): readonly [string, ...string[]] {
  const [own, ...args] = commandOf(name);
  return [node ?? own, ...args];
}

/** As in the image. Logs go to files: reading them here would take processor time from what is measured. */
function measured(dir: string, env: Env = {}, command: readonly string[] = []) {
  return (id: string): Pick<MemberSettings, 'env' | 'place'> => ({
    env: { ...AS_IN_IMAGE, ...env },
    place: { command: ['sh', '-c', 'exec "$@" >>"$0" 2>&1', `${dir}/${id}.log`, ...command], host: '127.0.0.1' },
  });
}

function groupsOf(members: Readonly<Record<string, readonly Member[]>>): Groups {
  return Object.fromEntries(
    Object.entries(members).map(([name, some]) => [name, some.map(({ program }) => program.pid)]),
  );
}

/** A gateway, a hub and an agent. The Redis that the first two share takes no part in a tunnel. */
export const splitTiers: Family = async (scope) => {
  const plane = await splitPlane(scope, { hubs: 1, gateways: 1, agents: 1, ...(await split(scope)) });
  return async () => startedOf(plane);
};

/** The same, with a unix socket between gateway and hub. */
export const splitOverSockets: Family = async (scope) => {
  const own = await split(scope, { 'peer-uds-dir': await tempDir(scope) });
  const plane = await splitPlane(scope, { hubs: 1, gateways: 1, agents: 1, ...own });
  return async () => startedOf(plane);
};

/** They log as they do by default. */
async function split(scope: Scope, links: Flags = {}): Promise<SplitPlaneOptions> {
  const agentFlags = () => ({ ...INTERVALS, v: undefined });
  return { planeFlags: { v: undefined, ...links }, agentFlags, as: measured(await tempDir(scope)) };
}

function startedOf({ doors: [door], gateways, hubs, agents }: SplitPlane): Started {
  return {
    ...(door && { door }),
    groups: groupsOf({ gateway: gateways, hub: hubs, agent: agents }),
    ready: async () => {},
  };
}

/** Split tiers with tenants, and an agent of each. The first is measured, the last floods. */
export function tenants(names: readonly [string, ...string[]]): Family {
  return async (scope) => {
    const plane = await tenantsPlane(scope, names, await split(scope));
    return async () => ({ ...startedOf(plane), floodDoor: plane.floodDoor });
  };
}

/** A plane for each of two tenants on one machine. What the first one loses here it loses to the machine. */
export const tenantsApart: Family = async (scope) => {
  const [own, other] = [
    await tenantsPlane(scope, ['quiet'], await split(scope)),
    await tenantsPlane(scope, ['flood'], await split(scope)),
  ];
  return async () => ({ ...startedOf(own), floodDoor: other.floodDoor });
};
