import { type RedisServer, startRedis } from '@isthmus/registry/testing';
import { Authority, type Identity } from '@isthmus/service/testing';
import type { Via } from './connect-caller.ts';
import { freePort, tempDir } from './places.ts';
import { type Flags, type Program, startProgram } from './program.ts';
import type { ProgramName } from './runtime.ts';
import type { Scope } from './scope.ts';
import { until } from './until.ts';

/** The three authorities of a plane: who may dial, who may be an agent, who may be a gateway or hub. */
export interface Trust {
  readonly dir: string;
  readonly callers: Authority;
  readonly agents: Authority;
  readonly peers: Authority;
  /** What an API server holds. */
  readonly caller: Identity;
}

export async function newTrust(scope: Scope): Promise<Trust> {
  const dir = await tempDir(scope);
  const [callers, agents, peers] = await Promise.all([
    Authority.create(dir, 'callers'),
    Authority.create(dir, 'agents'),
    Authority.create(dir, 'peers'),
  ]);
  return { dir, callers, agents, peers, caller: await callers.client('kube-apiserver') };
}

/** A program that takes callers. Ours takes gRPC and HTTP CONNECT on every listener, so `grpc` and `connect` are one. */
export interface Front {
  readonly program: Program;
  readonly grpc: { readonly uds: string };
  readonly connect: { readonly uds: string };
  readonly mtls: { readonly port: number; readonly ca: string; readonly identity: Identity };
}

/** A program that takes agents. */
export interface Back {
  readonly program: Program;
  readonly agentPort: number;
}

/** Added to a program's environment. */
export type Env = Readonly<Record<string, string>>;

export async function startServer(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Front & Back> {
  const agentPort = await freePort();
  const all = { ...(await agentPortFlags(trust, agentPort)), ...flags };
  return { ...(await startFront(scope, trust, 'proxy-server', all, env)), agentPort };
}

export function startGateway(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Front> {
  return startFront(scope, trust, 'frontend-gw', flags, env);
}

export async function startHub(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Back> {
  const agentPort = await freePort();
  const health = await healthFlags();
  const own = { ...(await hubFlags(trust, agentPort)), ...(await agentPortFlags(trust, agentPort)) };
  const all = { ...health, ...own, ...flags };
  const program = startProgram(scope, 'backend-hub', { flags: all, env, healthPort: health['health-port'] });
  await isUp(program);
  return { program, agentPort };
}

/** Flags of a hub, or of a proxy-server, that other processes of its plane reach. */
export async function hubFlags(trust: Trust, agentPort: number): Promise<Flags> {
  const peerPort = await freePort();
  return {
    ...(await peerFlags(trust)),
    'peer-port': peerPort,
    'peer-bind-address': '127.0.0.1',
    'advertise-address': `127.0.0.1:${peerPort}`,
    'advertise-agent-address': `127.0.0.1:${agentPort}`,
  };
}

/** An agent that dials a port of 127.0.0.1, with a certificate of its own. */
export async function startAgent(
  scope: Scope,
  trust: Trust,
  port: number,
  flags: Flags = {},
  env: Env = {},
): Promise<Program> {
  const { healthPort, ...own } = await uplinkFlags(trust, port);
  const all = { ...own, 'admin-server-port': await freePort(), ...flags };
  return startProgram(scope, 'proxy-agent', { flags: all, env, healthPort });
}

/** Flags of an agent that upstream's has too. */
export async function uplinkFlags(trust: Trust, port: number) {
  const identity = await trust.agents.client('agent');
  const healthPort = await freePort();
  return {
    healthPort,
    'proxy-server-host': '127.0.0.1',
    'proxy-server-port': port,
    'ca-cert': trust.agents.cert,
    'agent-cert': identity.cert,
    'agent-key': identity.key,
    'health-server-host': '127.0.0.1',
    'health-server-port': healthPort,
    'sync-interval': '200ms',
    'sync-interval-cap': '1s',
    'probe-interval': '200ms',
  };
}

export interface PlaneOptions {
  readonly agents?: number;
  readonly serverFlags?: Flags;
  readonly agentFlags?: Flags | ((index: number) => Flags);
  /** Added to the environment of all programs. */
  readonly env?: Env;
}

export interface AllInOne {
  readonly trust: Trust;
  readonly server: Front & Back;
  readonly agents: readonly Program[];
}

/** One proxy-server with the in-memory registry, and agents `agent-0` and up. All are ready. */
export async function allInOne(scope: Scope, options: PlaneOptions = {}): Promise<AllInOne> {
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, options.serverFlags, options.env);
  const agents = await startAgents(scope, trust, [server], options);
  await Promise.all([server.program, ...agents].map((program) => program.waitReady()));
  return { trust, server, agents };
}

export interface SplitOptions extends PlaneOptions {
  readonly gateways?: number;
  readonly hubs?: number;
  readonly gatewayFlags?: Flags;
  readonly hubFlags?: Flags;
}

export interface Split {
  readonly trust: Trust;
  readonly redis: RedisServer;
  readonly gateways: readonly Front[];
  readonly hubs: readonly Back[];
  readonly agents: readonly Program[];
}

/** Gateways, hubs and agents around a Redis of their own, mTLS between all. All are ready. */
export async function split(scope: Scope, options: SplitOptions = {}): Promise<Split> {
  const { gateways: gatewayCount = 2, hubs: hubCount = 2, gatewayFlags, hubFlags, env } = options;
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'test' };
  const hubs = await times(hubCount, () => startHub(scope, trust, { ...plane, ...hubFlags }, env));
  const gateways = await times(gatewayCount, async () =>
    startGateway(scope, trust, { ...plane, ...(await peerFlags(trust)), ...gatewayFlags }, env),
  );
  const agents = await startAgents(scope, trust, hubs, options);
  const programs = [...hubs, ...gateways].map(({ program }) => program);
  await Promise.all([...programs, ...agents].map((program) => program.waitReady()));
  return { trust, redis, gateways, hubs, agents };
}

function startAgents(scope: Scope, trust: Trust, backs: readonly Back[], options: PlaneOptions): Promise<Program[]> {
  return times(options.agents ?? 1, (index) => {
    const { agentFlags = {}, env } = options;
    const { agentPort } = backs[index % backs.length] as Back;
    const own = typeof agentFlags === 'function' ? agentFlags(index) : agentFlags;
    return startAgent(scope, trust, agentPort, { 'agent-id': `agent-${index}`, ...own }, env);
  });
}

async function startFront(scope: Scope, trust: Trust, name: ProgramName, flags: Flags, env: Env): Promise<Front> {
  const { cert, key } = await trust.callers.server();
  const health = await healthFlags();
  const port = await freePort();
  const uds = `${trust.dir}/${health['health-port']}.sock`;
  const own = {
    'uds-name': uds,
    'server-port': port,
    'server-bind-address': '127.0.0.1',
    'server-cert': cert,
    'server-key': key,
    'server-ca-cert': trust.callers.cert,
  };
  const all = { ...health, ...own, ...flags };
  const program = startProgram(scope, name, { flags: all, env, healthPort: health['health-port'] });
  await isUp(program);
  const { caller, callers } = trust;
  return { program, grpc: { uds }, connect: { uds }, mtls: { port, ca: callers.cert, identity: caller } satisfies Via };
}

/** Flags of the port for agents, upstream's names. */
export async function agentPortFlags(trust: Trust, port: number): Promise<Flags> {
  const { cert, key } = await trust.agents.server();
  return {
    'agent-port': port,
    'agent-bind-address': '127.0.0.1',
    'cluster-cert': cert,
    'cluster-key': key,
    'cluster-ca-cert': trust.agents.cert,
  };
}

/** Flags of a gateway's or hub's own certificate. */
export async function peerFlags(trust: Trust): Promise<Flags> {
  const { cert, key } = await trust.peers.server();
  return { 'peer-cert': cert, 'peer-key': key, 'peer-ca-cert': trust.peers.cert };
}

export async function healthFlags() {
  return {
    'health-port': await freePort(),
    'health-bind-address': '127.0.0.1',
    'admin-port': await freePort(),
    'admin-bind-address': '127.0.0.1',
  };
}

/** Waits until a program's listeners are up; ready it is only with an agent. */
export async function isUp(program: Program): Promise<void> {
  const up = async () => (await program.get('/healthz')).status === 200;
  await until(up, {
    deadline: 20_000,
    what: () => `/healthz of ${program.name}${program.tail}`,
    hopeless: () => (program.running ? undefined : 'it has ended'),
  });
}

function times<T>(count: number, make: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => make(index)));
}
