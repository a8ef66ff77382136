import type { Ways } from '../harness/index.ts';
import {
  AS_IN_IMAGE,
  callersAt,
  commandOf,
  type Flags,
  type MemberSettings,
  newTrust,
  type Scope,
  tempDir,
} from '../harness/index.ts';
import { listening } from '../rig/child.ts';
import type { Protocol } from '../rig/dial.ts';
import type { Groups } from '../rig/load/messages.ts';
import { type PlaneOptions, startPlane } from '../rig/plane.ts';
import type { FloorSettings } from './floor.ts';
import type { Line } from './lines.ts';

/** Processes between callers and the destination, which are ready. */
export interface Started {
  /** Where callers connect: the door of a plane, or the first relay's port. */
  readonly door?: Ways;
  readonly port?: number;
  /** Whether a ClientHello with a name comes first. */
  readonly named?: true;
  readonly groups: Groups;
  /** If it is not the bench's, on this machine. */
  readonly destination?: { readonly port: number; readonly host: string };
}

/** Starts the processes for a line. */
export type Family = (scope: Scope, destinationPort: number, line: Line) => Promise<Started>;

/** A chain of relays, each in its own process. */
export function relays(count: number): Family {
  return async (scope, destinationPort) => {
    let to = destinationPort;
    const groups: Record<string, number[]> = {};
    for (let index = count; index > 0; index--) {
      const settings: FloorSettings = { to };
      const { port, pid } = await listening(scope, 'bench/floor.ts', { argument: JSON.stringify(settings) });
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
export function floor(way: 'connect' | 'mtls', onward: boolean): Family {
  return async (scope, destinationPort) => {
    const trust = await newTrust(scope);
    const { ways } = await callersAt(trust, `${trust.dir}/callers.sock`);
    const { cert, key } = await trust.callers.server();
    const listen = way === 'connect' ? { path: ways.connect.uds } : { cert, key, ca: trust.callers.cert };
    const settings: FloorSettings = { listen, ...(onward && { to: destinationPort }) };
    const [node] = commandOf('proxy-server');
    const options = { argument: JSON.stringify(settings), command: [node] };
    const { port, pid } = await listening(scope, 'bench/floor.ts', options);
    return { door: { ...ways, mtls: { ...ways.mtls, port } }, groups: { floor: [pid] } };
  };
}

/** Upstream's programs. */
export interface AnpBinaries {
  readonly server: string;
  readonly agent: string;
}

/** Where an agent runs, and the address at which it reaches the server here. */
export interface Far {
  /** Runs another command there: `ip netns exec ...`. */
  readonly command: readonly string[];
  readonly outside: string;
}

interface InOne {
  /** Programs in the place of ours. */
  readonly anp?: AnpBinaries | undefined;
  /** How upstream's server accepts callers, which it does in one way only. */
  readonly protocol?: Protocol;
  /** Where the agent is, if not here. */
  readonly far?: Far;
}

/** An all-in-one server and an agent with mTLS between them. */
export function inOne({ anp, protocol, far }: InOne = {}) {
  return async (scope: Scope, _port: number): Promise<Started> => {
    const trust = await newTrust(scope);
    const { cert, key } = await trust.agents.server(far && { hosts: [{ type: 'ip', value: far.outside }] });
    const outside = far && { 'agent-bind-address': far.outside, 'cluster-cert': cert, 'cluster-key': key };
    const log = logging(trust.dir);
    return await started(scope, {
      servers: 1,
      agents: 1,
      trust,
      planeFlags: { v: undefined, ...outside, ...(anp && upstreams(protocol)) },
      agentFlags: () => ({
        ...AS_BY_DEFAULT,
        ...(anp && { 'session-count': undefined }),
        ...(far && { 'proxy-server-host': far.outside }),
      }),
      each: (id) => {
        const isServer = id === 'server-0';
        const other = isServer ? anp?.server : anp?.agent;
        const runs = other === undefined ? commandOf(isServer ? 'proxy-server' : 'proxy-agent') : ([other] as const);
        return { runs, ...log(id, isServer ? [] : far?.command) };
      },
    });
  };
}

function upstreams(protocol: Protocol | undefined): Flags {
  const mode = protocol === 'grpc' ? 'grpc' : 'http-connect';
  if (protocol === 'mtls') return { mode, 'uds-name': undefined };
  const tls = Object.fromEntries(
    ['bind-address', 'cert', 'key', 'ca-cert'].map((name) => [`server-${name}`, undefined]),
  );
  return { mode, 'server-port': 0, ...tls };
}

/** Agents log as they do by default, and have the default intervals, which the harness shortens. */
const AS_BY_DEFAULT: Flags = {
  v: undefined,
  'sync-interval': undefined,
  'sync-interval-cap': undefined,
  'probe-interval': undefined,
};

/** A gateway, a hub and an agent. The Redis that the first two share takes no part in a tunnel. @param sockets whether gateway and hub have a unix socket between them */
export function splitTiers(sockets: boolean): Family {
  return async (scope) => {
    const dir = await tempDir(scope);
    const links = sockets ? { 'peer-uds-dir': await tempDir(scope) } : {};
    return await started(scope, {
      ...{ hubs: 1, gateways: 1, agents: 1 },
      planeFlags: { v: undefined, ...links },
      agentFlags: () => AS_BY_DEFAULT,
      each: logging(dir),
    });
  };
}

async function started(scope: Scope, options: PlaneOptions): Promise<Started> {
  const { doors, gateways, hubs, agents } = await startPlane(scope, options);
  const [door] = doors as [Ways];
  const servers = gateways === hubs ? { server: gateways } : { gateway: gateways, hub: hubs };
  const groups = Object.entries({ ...servers, agent: agents }).map(([name, members]) => {
    return [name, members.map(({ program }) => program.pid)] as const;
  });
  return { door, groups: Object.fromEntries(groups) };
}

/** As in the image. Logs go to files: reading them here would take processor time from what is measured. */
function logging(dir: string) {
  return (id: string, command: readonly string[] = []): MemberSettings => ({
    env: AS_IN_IMAGE,
    place: { command: ['sh', '-c', 'exec "$@" >>"$0" 2>&1', `${dir}/${id}.log`, ...command], host: '127.0.0.1' },
  });
}
