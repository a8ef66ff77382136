import {
  AS_IN_IMAGE,
  agentMember,
  callersAt,
  commandOf,
  type Flags,
  type Member,
  type MemberSettings,
  newTrust,
  type ProgramName,
  type Scope,
  serverMember,
  tempDir,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import { type Door, doorOf } from '../rig/door.ts';
import type { Groups } from '../rig/load/messages.ts';
import { type SplitPlane, type SplitPlaneOptions, splitPlane } from '../rig/split-plane.ts';
import type { FloorSettings } from './floor.ts';

/** Processes between callers and the destination, which are ready. */
export interface Started {
  /** Where callers connect: the door of a plane, or the first relay's port. */
  readonly door?: Door;
  readonly port?: number;
  readonly groups: Groups;
}

/** Starts the processes. */
export type Family = (scope: Scope, destinationPort: number) => Promise<Started>;

/** A chain of relays, each in its own process. */
export function relays(count: number): Family {
  return async (scope, destinationPort) => {
    let to = destinationPort;
    const groups: Record<string, number[]> = {};
    for (let index = count; index > 0; index--) {
      const { port, pid } = await listening(scope, 'bench/relay.ts', { argument: String(to) });
      groups[`relay-${index}`] = [pid];
      to = port;
    }
    return { port: to, groups };
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
    const options = { argument: JSON.stringify(settings), command: [node] };
    const { port, pid } = await listening(scope, 'bench/floor.ts', options);
    return { door: doorOf({ ...ways, mtls: { ...ways.mtls, port } }), groups: { floor: [pid] } };
  };
}

/** An all-in-one server and an agent on another Node, with the image's options. */
export function onNode(node: string): Family {
  return (scope) => inOne({ node }, scope);
}

/** An all-in-one server and an agent with mTLS between them. */
export const allInOne: Family = (scope) => inOne({}, scope);

/** Upstream's programs. */
export interface AnpBinaries {
  readonly server: string;
  readonly agent: string;
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
  readonly anp?: AnpBinaries;
  readonly serverFlags?: Flags;
  readonly far?: Far;
}

async function inOne(options: InOne, scope: Scope): ReturnType<Family> {
  const { node, anp, serverFlags = {}, far } = options;
  const trust = await newTrust(scope);
  const runs = (name: ProgramName, program?: string): readonly [string, ...string[]] => {
    const [own, ...args] = commandOf(name);
    return program === undefined ? [node ?? own, ...args] : [program];
  };
  const place = far && (await trust.agents.server({ hosts: [{ type: 'ip', value: far.outside }] }));
  const outside = place && { 'agent-bind-address': far?.outside, 'cluster-cert': place.cert, 'cluster-key': place.key };
  const { member, agentPort, ways } = await serverMember(scope, trust, 'server', {
    ...measured(trust.dir)('server'),
    runs: runs('proxy-server', anp?.server),
    flags: { ...outside, ...serverFlags },
  });
  const agent = await agentMember(scope, trust, 'agent', agentPort, {
    ...measured(trust.dir, far?.command)('agent'),
    runs: runs('proxy-agent', anp?.agent),
    flags: { ...INTERVALS, ...(far && { 'proxy-server-host': far.outside }) },
  });
  await member.program.waitReady();
  return { door: doorOf(ways), groups: groupsOf({ server: [member], agent: [agent] }) };
}

/** As in the image. Logs go to files: reading them here would take processor time from what is measured. */
function measured(dir: string, command: readonly string[] = []) {
  return (id: string): Pick<MemberSettings, 'env' | 'place'> => ({
    env: AS_IN_IMAGE,
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
  return startedOf(await splitPlane(scope, { hubs: 1, gateways: 1, agents: 1, ...(await split(scope)) }));
};

/** The same, with a unix socket between gateway and hub. */
export const splitOverSockets: Family = async (scope) => {
  const own = await split(scope, { 'peer-uds-dir': await tempDir(scope) });
  return startedOf(await splitPlane(scope, { hubs: 1, gateways: 1, agents: 1, ...own }));
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
  };
}
