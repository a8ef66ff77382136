import type { Identity } from '@isthmus/certificates/testing';
import { type RedisServer, startRedis } from '@isthmus/directory/testing/servers';
import { until } from '@isthmus/runtime/testing';
import type { TlsVia, Via } from './connect-caller.ts';
import { agentPortFlags, healthFlags, hubFlags, peerFlags, uplinkFlags } from './flags.ts';
import { Member, type Place, type Runs } from './member.ts';
import { freePort } from './places.ts';
import { type Env, type Program, READY_EVERY_MS } from './program.ts';
import { commandOf, type Flags, type ProgramName } from './runtime.ts';
import type { Scope } from './scope.ts';
import { newTrust, type Trust } from './trust.ts';

/** How callers reach a program. Ours accepts gRPC and HTTP CONNECT on every listener, so `grpc` and `connect` are the same. */
export interface Ways {
  readonly grpc: { readonly uds: string };
  readonly connect: { readonly uds: string };
  readonly mtls: TlsVia & { readonly identity: Identity };
}

/** A program that accepts callers. */
export interface Front extends Ways {
  readonly program: Program;
}

/** A program that accepts agents. */
export interface Back {
  readonly program: Program;
  readonly agentPort: number;
}

/** Flags, additions to the environment, where it runs, and the command of another program in its place. */
export interface MemberSettings {
  readonly runs?: Runs;
  readonly flags?: Flags;
  readonly env?: Env;
  readonly place?: Place | undefined;
}

export async function startServer(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Front & Back> {
  const { member, agentPort, ways } = await serverMember(scope, trust, 'proxy-server', { flags, env });
  await isUp(member.program);
  return { program: member.program, agentPort, ...ways };
}

export async function startGateway(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Front> {
  const { member, ways } = await gatewayMember(scope, trust, 'frontend-gw', { flags, env });
  await isUp(member.program);
  return { program: member.program, ...ways };
}

export async function startHub(scope: Scope, trust: Trust, flags: Flags = {}, env: Env = {}): Promise<Back> {
  const { member, agentPort } = await hubMember(scope, trust, 'backend-hub', { flags, env });
  await isUp(member.program);
  return { program: member.program, agentPort };
}

/** An agent that dials a port of 127.0.0.1, with its own certificate. */
export async function startAgent(
  scope: Scope,
  trust: Trust,
  port: number,
  flags: Flags = {},
  env: Env = {},
): Promise<Program> {
  return (await agentMember(scope, trust, 'proxy-agent', port, { flags, env })).program;
}

/** An all-in-one server that accepts agents on its own port. With a registry, others of its plane can connect to it. */
export async function serverMember(scope: Scope, trust: Trust, id: string, settings: MemberSettings = {}) {
  const agentPort = await freePort();
  const joins = settings.flags?.['redis-url'] !== undefined;
  const own = { ...(await agentPortFlags(trust, agentPort)), ...(joins && (await hubFlags(trust, agentPort))) };
  const flags = { ...own, ...settings.flags };
  return { ...(await frontMember(scope, trust, 'proxy-server', id, { ...settings, flags })), agentPort };
}

export function gatewayMember(scope: Scope, trust: Trust, id: string, settings: MemberSettings = {}) {
  return frontMember(scope, trust, 'frontend-gw', id, settings);
}

export async function hubMember(scope: Scope, trust: Trust, id: string, settings: MemberSettings = {}) {
  const { flags, ...where } = settings;
  const agentPort = await freePort();
  const health = await healthFlags();
  const own = { ...(await hubFlags(trust, agentPort)), ...(await agentPortFlags(trust, agentPort)) };
  const all = { ...health, ...own, ...flags };
  const healthPort = health['health-port'];
  return { member: new Member(scope, { id, runs: 'backend-hub', flags: all, healthPort, ...where }), agentPort };
}

export async function agentMember(scope: Scope, trust: Trust, id: string, port: number, settings: MemberSettings = {}) {
  const { flags, ...where } = settings;
  const { healthPort, ...own } = await uplinkFlags(trust, port);
  const all = { ...own, 'admin-server-port': await freePort(), ...flags };
  return new Member(scope, { id, runs: 'proxy-agent', flags: all, healthPort, ...where });
}

/** The callers' end of a plane, `isthmus hold`. @param gateways where callers connect to its gateways, the one to prefer first */
export async function holdMember(
  scope: Scope,
  trust: Trust,
  gateways: readonly (Via | Ways)[],
  flags: Flags = {},
  where: Pick<MemberSettings, 'env' | 'place'> = {},
) {
  const healthPort = await freePort();
  const callers = await callersAt(trust, `${trust.dir}/hold-${healthPort}.sock`);
  const { cert, key } = await trust.callers.client('hold');
  const all = {
    'health-port': healthPort,
    'health-bind-address': '127.0.0.1',
    'log-format': 'json',
    ...callers.flags,
    gateways: gateways.map(placeOf).join(','),
    'gateway-cert': cert,
    'gateway-key': key,
    'gateway-ca-cert': trust.callers.cert,
    ...flags,
  };
  const runs = [...commandOf('isthmus'), 'hold'] as const;
  return { member: new Member(scope, { id: 'hold', runs, flags: all, healthPort, ...where }), ways: callers.ways };
}

function placeOf(gateway: Via | Ways): string {
  if ('grpc' in gateway) return gateway.grpc.uds;
  return 'uds' in gateway ? gateway.uds : `127.0.0.1:${gateway.port}`;
}

/**
 * Whether a program that accepts callers has tried a second session for a dial because the first was silent for 0.3 s, as on a busy machine.
 * It then avoids the silent one for a second, so dials go where they usually would not.
 */
export async function hasHedged(program: Program): Promise<boolean> {
  const attempts = [...(await program.metric('isthmus_dial_attempts_total'))];
  return attempts.some(([labels, count]) => labels.includes('kind="hedge"') && count > 0);
}

/** The same for all, or by their number. */
type FlagsOfEach = Flags | ((index: number) => Flags);

function flagsOf(flags: FlagsOfEach | undefined, index: number): Flags | undefined {
  return typeof flags === 'function' ? flags(index) : flags;
}

export interface PlaneOptions {
  readonly agents?: number;
  readonly serverFlags?: Flags;
  readonly agentFlags?: FlagsOfEach;
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
  readonly hubFlags?: FlagsOfEach;
}

export interface Split {
  readonly trust: Trust;
  readonly redis: RedisServer;
  readonly gateways: readonly Front[];
  readonly hubs: readonly Back[];
  readonly agents: readonly Program[];
}

/** Gateways, hubs and agents around their own Redis, with mTLS between all. All are ready. */
export async function split(scope: Scope, options: SplitOptions = {}): Promise<Split> {
  const { gateways: gatewayCount = 2, hubs: hubCount = 2, gatewayFlags, hubFlags, env } = options;
  const trust = await newTrust(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const plane = { 'redis-url': redis.url, plane: 'test' };
  const hubs = await times(hubCount, (index) => startHub(scope, trust, { ...plane, ...flagsOf(hubFlags, index) }, env));
  const gateways = await times(gatewayCount, async () =>
    startGateway(scope, trust, { ...plane, ...(await peerFlags(trust, ['gateway'])), ...gatewayFlags }, env),
  );
  const agents = await startAgents(scope, trust, hubs, options);
  const programs = [...hubs, ...gateways].map(({ program }) => program);
  await Promise.all([...programs, ...agents].map((program) => program.waitReady()));
  return { trust, redis, gateways, hubs, agents };
}

function startAgents(scope: Scope, trust: Trust, backs: readonly Back[], options: PlaneOptions): Promise<Program[]> {
  return times(options.agents ?? 1, (index) => {
    const { agentPort } = backs[index % backs.length] as Back;
    const flags = { 'agent-id': `agent-${index}`, ...flagsOf(options.agentFlags, index) };
    return startAgent(scope, trust, agentPort, flags, options.env);
  });
}

async function frontMember(scope: Scope, trust: Trust, runs: ProgramName, id: string, settings: MemberSettings) {
  const { flags, ...where } = settings;
  const health = await healthFlags();
  const uds = `${flags?.['uds-name'] ?? `${trust.dir}/${health['health-port']}.sock`}`;
  const callers = await callersAt(trust, uds);
  const all = { ...health, ...callers.flags, ...flags };
  const member = new Member(scope, { id, runs, flags: all, healthPort: health['health-port'], ...where });
  return { member, ways: callers.ways };
}

/** A unix socket and a port with mutual TLS, where a program accepts callers. */
export async function callersAt(trust: Trust, uds: string): Promise<{ readonly flags: Flags; readonly ways: Ways }> {
  const { cert, key } = await trust.callers.server();
  const port = await freePort();
  const { cert: ca } = trust.callers;
  const flags = {
    'uds-name': uds,
    'server-port': port,
    'server-bind-address': '127.0.0.1',
    'server-cert': cert,
    'server-key': key,
    'server-ca-cert': ca,
  };
  return { flags, ways: { grpc: { uds }, connect: { uds }, mtls: { port, ca, identity: trust.caller } } };
}

/** Waits until a program's listeners are up. It is ready only once it has an agent. */
export async function isUp(program: Program): Promise<void> {
  const up = async () => (await program.get('/healthz')).status === 200;
  await until(up, {
    every: READY_EVERY_MS,
    what: () => `/healthz of ${program.name}${program.tail}`,
    hopeless: () => (program.running ? undefined : 'it has ended'),
  });
}

export function times<T>(count: number, make: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => make(index)));
}
