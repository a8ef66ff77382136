import { mkdir, writeFile } from 'node:fs/promises';
import { Authority } from '@isthmus/certificates/testing';
import { startRedis } from '@isthmus/directory/testing/servers';
import { type Door, doorOf } from '../chaos/load/door.ts';
import {
  AS_IN_IMAGE,
  agentPortFlags,
  callersAt,
  commandOf,
  type Env,
  type Flags,
  freePort,
  healthFlags,
  hubFlags,
  isUp,
  newTrust,
  Program,
  type ProgramName,
  peerFlags,
  relayTo,
  type Scope,
  type Trust,
  uplinkFlags,
} from '../harness/index.ts';
import { Fleet } from '../scale/fleet.ts';
import { listening } from './child.ts';
import type { FloorSettings } from './floor.ts';
import type { Groups } from './load/messages.ts';

/** Processes between callers and the destination, started together. They may not be ready yet. */
export interface Started {
  /** Where callers connect: the door of a plane, or the first relay's port. */
  readonly door?: Door;
  readonly port?: number;
  /** Where a second tenant's callers connect. */
  readonly floodDoor?: Door;
  readonly groups: Groups;
  /** What runs beside them while they are measured, and at no other time (neighbour.ts). */
  readonly neighbours?: readonly string[];
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
      const { port, pid } = await listening(scope, './relay.ts', String(to));
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
    const { trust } = await newPlace(scope);
    const { cert, key } = await trust.callers.server();
    const uds = `${trust.dir}/callers.sock`;
    const listen = way === 'connect' ? { path: uds } : { cert, key, ca: trust.callers.cert };
    const settings: FloorSettings = { listen, ...(onward && { to: destinationPort }) };
    return async () => {
      const { port, pid } = await listening(scope, './floor.ts', JSON.stringify(settings), [node]);
      const mtls = { port, ca: trust.callers.cert, identity: trust.caller };
      const door = doorOf({ grpc: { uds }, connect: { uds }, mtls });
      return { door, groups: { floor: [pid] }, ready: async () => {} };
    };
  };
}

/** The same processes beside neighbours that take the processor's caches from them (neighbour.ts). */
export function beside(family: Family): Family {
  return async (...args) => {
    const start = await family(...args);
    return async () => ({ ...(await start()), neighbours: ['memory', 'code'] });
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
    const { port } = await listening(scope, './collector.ts');
    const endpoint = `http://127.0.0.1:${port}`;
    return inOne({ env: { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint, OTEL_TRACES_SAMPLER: sampler } }, scope);
  };
}

/** The same without resume: tunnels end with the link that carries them. */
export const withoutResume: Family = (scope) => inOne({ flags: WITHOUT_RESUME }, scope);
export const farWithoutResume: Family = (scope) =>
  inOne({ flags: WITHOUT_RESUME, way: (port) => farTo(scope, port) }, scope);

/** An all-in-one server with upstream's agent. */
export function goAgent({ agent }: AnpBinaries): Family {
  return (scope) => inOne({ agent }, scope);
}

interface InOne {
  /** The Node that runs the programs, if not the one that runs the bench. */
  readonly node?: string;
  /** The program in the place of our agent. */
  readonly agent?: string;
  readonly env?: Env;
  /** Added to the flags of both. */
  readonly flags?: Flags;
  /** How many simulated agents replace the real one. */
  readonly agents?: number | undefined;
  /** Returns the port through which the agent reaches the server's port. */
  readonly way?: (port: number) => Promise<number>;
}

async function inOne(
  { node, env = {}, flags = {}, agent: program, agents, way }: InOne,
  scope: Scope,
): ReturnType<Family> {
  const place = await newPlace(scope);
  const front = await frontFlags(place.trust);
  const back = await backFlags(place.trust);
  if (agents !== undefined) {
    const { cert, key } = await place.trust.agents.client('agent');
    const tls = { ca: place.trust.agents.cert, cert, key };
    return async () => {
      const server = run(place, 'proxy-server', { ...front.flags, ...back.flags });
      await isUp(server);
      const hubPorts = [back.agentPort];
      const fleet = scope.use(new Fleet({ hubPorts, tls, sessionCount: 1, rebalanceTime: 600_000 }));
      fleet.grow(agents);
      await fleet.complete();
      return { door: front.door, groups: { server: [server.pid] }, ready: () => server.waitReady() };
    };
  }
  const uplink = await agentFlags(place.trust, way ? await way(back.agentPort) : back.agentPort);
  return async () => {
    const server = run(place, onThis('proxy-server', node), { ...front.flags, ...back.flags, ...flags }, env);
    const onwards = { ...uplink, ...flags };
    const agent = run(place, program === undefined ? onThis('proxy-agent', node) : [program], onwards, env);
    return { door: front.door, groups: { server: [server.pid], agent: [agent.pid] }, ready: () => server.waitReady() };
  };
}

/** A gateway, a hub and an agent. The Redis that the first two share takes no part in a tunnel. */
export const splitTiers: Family = async (scope) => split(scope, await newPlace(scope), {});

/** The same, with a unix socket between gateway and hub. */
export const splitOverSockets: Family = async (scope) => {
  const place = await newPlace(scope);
  return split(scope, place, { 'peer-uds-dir': place.trust.dir });
};

async function split(scope: Scope, place: Place, links: Flags): ReturnType<Family> {
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'bench', ...links };
  const front = { ...(await frontFlags(place.trust)) };
  const peers = await peerFlags(place.trust);
  const back = await backFlags(place.trust);
  const hubs = await hubFlags(place.trust, back.agentPort);
  const health = await healthFlags();
  const uplink = await agentFlags(place.trust, back.agentPort);
  return async () => {
    const hub = run(place, 'backend-hub', { ...plane, ...health, ...back.flags, ...hubs });
    const gateway = run(place, 'frontend-gw', { ...plane, ...front.flags, ...peers });
    const agent = run(place, 'proxy-agent', uplink);
    const groups = { gateway: [gateway.pid], hub: [hub.pid], agent: [agent.pid] };
    return { door: front.door, groups, ready: () => gateway.waitReady() };
  };
}

/** Split tiers with tenants, and an agent of each. The first is measured, the last floods. */
export function tenants(names: readonly [string, ...string[]]): Family {
  return (scope) => withTenants(scope, names);
}

/** A plane for each of two tenants on one machine. What the first one loses here it loses to the machine. */
export const tenantsApart: Family = async (scope) => {
  const quiet = await withTenants(scope, ['quiet']);
  const flood = await withTenants(scope, ['flood']);
  return async () => {
    const [own, other] = [await quiet(), await flood()];
    const ready = async () => {
      await Promise.all([own.ready(), other.ready()]);
    };
    return { ...own, ...(other.floodDoor && { floodDoor: other.floodDoor }), ready };
  };
};

async function withTenants(scope: Scope, all: readonly string[]): ReturnType<Family> {
  const place = await newPlace(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'bench', 'tenants-dir': `${place.trust.dir}/tenants` };
  const front = await frontFlags(place.trust);
  const peers = await peerFlags(place.trust);
  const back = await backFlags(place.trust);
  const hubs = await hubFlags(place.trust, back.agentPort);
  const health = await healthFlags();
  await mkdir(plane['tenants-dir']);
  const uplinks = await Promise.all(all.map((each) => tenant(place.trust, plane['tenants-dir'], each, back.agentPort)));
  return async () => {
    const hub = run(place, 'backend-hub', { ...plane, ...health, ...back.flags, ...hubs });
    const gateway = run(place, 'frontend-gw', { ...plane, ...front.flags, ...peers, 'uds-name': undefined });
    const agents = uplinks.map((uplink) => run(place, 'proxy-agent', uplink));
    const groups = { gateway: [gateway.pid], hub: [hub.pid], agents: agents.map(({ pid }) => pid) };
    const tenantDoor = (name = '') => ({
      ...front.door,
      grpc: socketOf(place.trust, name),
      connect: socketOf(place.trust, name),
    });
    const ready = async () => {
      await gateway.waitReady();
      await Promise.all(agents.map((agent) => agent.waitReady()));
    };
    return { door: tenantDoor(all[0]), floodDoor: tenantDoor(all.at(-1)), groups, ready };
  };
}

function socketOf({ dir }: Trust, tenant: string): string {
  return `${dir}/${tenant}.sock`;
}

/** Writes a tenant's file. @returns the flags of its agent */
async function tenant(trust: Trust, dir: string, name: string, agentPort: number): Promise<Flags> {
  const authority = await Authority.create(trust.dir, name);
  const { cert, key } = await authority.client(`${name}-agent`);
  const file = {
    tenant: name,
    agents: [{ certificates: { ca: authority.cert } }],
    callers: [{ unixSocket: socketOf(trust, name) }],
  };
  await writeFile(`${dir}/${name}.yaml`, JSON.stringify(file));
  const flags = await agentFlags(trust, agentPort);
  return { ...flags, 'agent-id': `${name}-agent`, 'agent-cert': cert, 'agent-key': key };
}

export interface AnpBinaries {
  readonly server: string;
  readonly agent: string;
}

/** Upstream's pair. Its server accepts callers in one way only: over gRPC or CONNECT, on a unix socket or over TCP. */
export function anpPair({ server, agent }: AnpBinaries, protocol: 'grpc' | 'connect' | 'mtls'): Family {
  return async (scope) => {
    const place = await newPlace(scope);
    const front = await frontFlags(place.trust);
    const back = await backFlags(place.trust);
    const own: Flags = protocol === 'mtls' ? { 'uds-name': undefined } : OVER_UDS;
    const mode = protocol === 'grpc' ? 'grpc' : 'http-connect';
    const uplink = await agentFlags(place.trust, back.agentPort);
    return async () => {
      const running = run(place, [server], { ...front.flags, ...own, mode, ...back.flags });
      const other = run(place, [agent], uplink);
      return {
        door: front.door,
        groups: { server: [running.pid], agent: [other.pid] },
        ready: () => running.waitReady(),
      };
    };
  };
}

/** Where an agent runs, and the address at which it reaches the server here. */
export interface Far {
  /** Runs another command there: `ip netns exec ...`. */
  readonly command: readonly string[];
  readonly outside: string;
}

/** An all-in-one server here, and its agent behind a path; ours or upstream's. Callers come by CONNECT. */
export function overPath({ command, outside }: Far, anp?: AnpBinaries): Family {
  return async (scope) => {
    const place = await newPlace(scope);
    const front = await frontFlags(place.trust);
    const back = await backFlags(place.trust);
    const { cert, key } = await place.trust.agents.server({ hosts: [{ type: 'ip', value: outside }] });
    const port = { ...back.flags, 'agent-bind-address': outside, 'cluster-cert': cert, 'cluster-key': key };
    const own: Flags = anp ? { ...OVER_UDS, mode: 'http-connect' } : {};
    const uplink = { ...(await agentFlags(place.trust, back.agentPort)), 'proxy-server-host': outside };
    return async () => {
      const server = run(place, anp ? [anp.server] : 'proxy-server', { ...front.flags, ...own, ...port });
      const there = [...command, ...(anp ? [anp.agent] : commandOf('proxy-agent'))] as unknown as Command;
      const agent = run(place, there, uplink);
      const groups = { server: [server.pid], agent: [agent.pid] };
      return { door: front.door, groups, ready: () => server.waitReady() };
    };
  };
}

const OVER_UDS: Flags = {
  'server-port': 0,
  'server-bind-address': undefined,
  'server-cert': undefined,
  'server-key': undefined,
  'server-ca-cert': undefined,
};

/** Where the processes of one plane keep their certificates, sockets and logs. */
interface Place {
  readonly scope: Scope;
  readonly trust: Trust;
}

async function newPlace(scope: Scope): Promise<Place> {
  return { scope, trust: await newTrust(scope) };
}

type Command = readonly [string, ...string[]];

/** Returns a program's command on another Node; without one, the program's name. */
function onThis(name: ProgramName, node: string | undefined): ProgramName | Command {
  const [, ...args] = commandOf(name);
  return node === undefined ? name : [node, ...args];
}

/** Starts a program whose log goes to a file: reading it here would take processor time from what is measured. */
function run({ scope, trust }: Place, runs: ProgramName | Command, flags: Flags, env: Env = {}): Program {
  const command = typeof runs === 'string' ? commandOf(runs) : runs;
  const name = command.at(-1)?.split('/').at(-1) ?? 'program';
  const healthPort = Number(flags['health-port'] ?? flags['health-server-port']);
  const logged = ['sh', '-c', 'exec "$@" >>"$0" 2>&1', `${trust.dir}/${name}.log`, ...command] as const;
  return scope.use(
    new Program(name, logged as unknown as [string, ...string[]], {
      flags,
      env: { ...AS_IN_IMAGE, ...env },
      healthPort,
    }),
  );
}

async function frontFlags(trust: Trust): Promise<{ readonly flags: Flags; readonly door: Door }> {
  const { flags, ways } = await callersAt(trust, `${trust.dir}/callers.sock`);
  return { flags: { ...(await healthFlags()), ...flags }, door: doorOf(ways) };
}

async function backFlags(trust: Trust): Promise<{ readonly flags: Flags; readonly agentPort: number }> {
  const agentPort = await freePort();
  return { flags: await agentPortFlags(trust, agentPort), agentPort };
}

/** Flags with the default intervals of an agent. */
async function agentFlags(trust: Trust, port: number): Promise<Flags> {
  const { healthPort: _, ...uplink } = await uplinkFlags(trust, port);
  return {
    ...uplink,
    'admin-server-port': await freePort(),
    'sync-interval': undefined,
    'sync-interval-cap': undefined,
    'probe-interval': undefined,
  };
}
