import {
  type AdminBackend,
  type AdminTls,
  answersOf,
  CertificateEnds,
  type Identity,
  type KnownSession,
  Losses,
  operations,
  quarantineIn,
  Recent,
} from '@isthmus/admin';
import { Directory, memoryRegistry, type Registry, Roster } from '@isthmus/directory';
import {
  adminTls,
  apiServerAt,
  type FlagTable,
  memberOf,
  type ProgramFlags,
  parseStrategies,
  peerLinks,
  peerTls,
  portsOfProcess,
  redisOptions,
  redisTls,
  type ServerValues,
  tlsPolicy,
  type Values,
} from '@isthmus/flags';
import { boundVerification } from '@isthmus/runtime';
import {
  admissionCheck,
  type Check,
  Closing,
  type Context,
  countSessions,
  type Running,
  registryCheck,
  runProgram,
  SERVER_UNREADY,
  sessionsCheck,
  VERSION,
} from '@isthmus/service';
import {
  createLogger,
  exportMetrics,
  type Instruments,
  instrument,
  type ProgramLogger,
  type ServerMetrics,
  serverMetrics,
} from '@isthmus/telemetry';
import { ApiServerLinks, type ApiServers, tlsServer, watchCertificate } from '@isthmus/transport';
import type { PlaneEvents, TunnelInfo } from '@isthmus/tunnel';
import { apiServersOf, followApiServers } from './api-servers.ts';
import { PlaneView } from './plane-view.ts';
import { Questions } from './questions.ts';
import type { Gateway, GatewayParts, Hub, Roles, Tenancy } from './roles.ts';

/** Runs a server program with its roles: alone with a registry in memory, or as a member of a plane with --redis-url. */
export function runServer<T extends FlagTable>(program: ProgramFlags<T>, roles: Roles<Values<T>>): Promise<void> {
  return runProgram<T, ProgramLogger>({
    ...program,
    log(flags) {
      const { v, 'log-format': format } = flags as ServerValues;
      return createLogger({ name: program.name, format, verbosity: v });
    },
    // A program with one role lacks the flags of the other, and nothing reads them.
    start: (flags, context) => start(program.name, roles as Roles<ServerValues>, flags as ServerValues, context),
  });
}

const ROLES = { gateway: ['gateway'], hub: ['hub'], server: ['gateway', 'hub'] } as const;

/** The parts of a running server. */
interface Server {
  readonly role: keyof typeof ROLES;
  readonly flags: ServerValues;
  readonly instruments: ServerInstruments;
  readonly metrics: ServerMetrics;
  readonly registry: Registry;
  readonly directory: Directory;
  readonly plane: PlaneView;
  readonly questions: Questions;
  readonly gateway: Gateway | undefined;
  readonly hub: Hub | undefined;
  /** Connections to API servers that hubs have a gateway make. */
  readonly apiServers: GatewayApiServers | undefined;
  readonly tenancy: Tenancy | undefined;
}

interface GatewayApiServers {
  readonly servers: ApiServers;
  readonly links: ApiServerLinks;
}

function start(
  name: string,
  roles: Roles<ServerValues>,
  flags: ServerValues,
  context: Context<ProgramLogger>,
): Promise<Running> {
  return Closing.guard(async (closing) => {
    const server = await startRoles(name, roles, flags, context, closing);
    const { gateway, hub } = server;
    await startOperations(name, server, context, closing);
    const { hubId, agentAddress: agents, peerAddress: gateways } = hub ?? {};
    const addresses = { hub: hubId, callers: gateway?.addresses, agents, gateways };
    context.log.info({ ...addresses, plane: flags.plane, version: VERSION }, 'ready');
    const leave = () => {
      gateway?.leave();
      hub?.leave();
    };
    return {
      leave,
      drain: () => drainRoles(server),
      close: () => closing.close(),
      cut: () => gateway?.cut(),
      ...(hub && { mustEnd: hub.superseded }),
    };
  });
}

/** Starts the hub first, so that the gateway knows its sessions from the beginning. */
async function startRoles(
  name: string,
  roles: Roles<ServerValues>,
  flags: ServerValues,
  context: Context<ProgramLogger>,
  closing: Closing,
): Promise<Server> {
  const role = roles.gateway ? (roles.hub ? 'server' : 'gateway') : 'hub';
  const source = { program: name, role, version: VERSION } as const;
  const instruments = await serverInstruments(closing, source, flags, context.log);
  const { events, observation, tunnels, keptAfter } = instruments;
  // A hub without a gateway reads its own sessions from the registry too.
  const directory = new Directory(role === 'server' ? { ownHub: flags['server-id'] } : {});
  const hasTenants = flags['tenants-dir'] !== '';
  const tenancy = hasTenants ? await (await tenancyCode()).startTenancy(flags, { closing, events }) : undefined;
  const metrics = serverMetrics(instruments, {
    role,
    process: true,
    strategies: roles.gateway ? parseStrategies(flags['proxy-strategies']) : ['default'],
    keptAfter,
    ...(tenancy && { tenants: tenancy.views.state }),
  });
  closing.defer(metrics.close);
  closing.defer(await exportMetrics(metrics, { ...source, process: flags['server-id'], logger: context.log }));
  const registry = flags['redis-url'] === '' ? memoryRegistry() : await joinedRegistry(flags, observation.events);
  closing.defer(() => registry.close());
  closing.defer(watchCertificate({ where: 'redis', files: redisTls(flags), events }));
  const parts = { closing, directory, observation, ...(tenancy && { tenancy }) };
  const warn = (message: string) => context.log.warn({}, message);
  boundVerification(warn);
  const questions = new Questions(flags['server-id'], directory);
  const { answer } = questions;
  const hub = await roles.hub?.(flags, { ...parts, registry, answer, leases: metrics.leases, warn });
  // A hub's peer port watches the same certificate.
  if (!hub) closing.defer(watchCertificate({ where: 'peers', files: peerTls(flags), events }));
  const linksHubs = roles.gateway && flags['redis-url'] !== '';
  const apiServers = linksHubs && !hub ? apiServersFor(flags, parts) : undefined;
  const plane = new PlaneView({
    registry,
    directory,
    events,
    ...(hub && { own: hub }),
    ...(linksHubs && {
      peers: { ...peerLinks(flags), member: { id: flags['server-id'], answer }, apiServers: apiServers?.links },
    }),
  });
  questions.link(plane.asking);
  closing.defer(() => plane.close());
  const { instance, nextHop } = plane;
  const tokens = roles.gateway && flags['caller-token-file'] !== '';
  const callerTokens = tokens && {
    callerTokens: await (await tenancyCode()).startCallerTokens(flags, { closing, events }),
  };
  const gateway = await roles.gateway?.(flags, { ...parts, ...callerTokens, instance, nextHop, tunnels });
  const using = tenancy && gateway && { using: () => tenancy.views.using(gateway) };
  const kept = gateway && { kept: () => gateway.kept };
  metrics.measure({ ...plane.state(gateway?.routing.tenant), ...using, ...kept });
  return {
    role,
    flags,
    instruments,
    metrics,
    registry,
    directory,
    plane,
    questions,
    gateway,
    hub,
    apiServers,
    tenancy,
  };
}

/** What a gateway connects to for hubs. @returns undefined if there is nothing */
function apiServersFor(
  flags: ServerValues,
  { closing, tenancy, observation }: Pick<GatewayParts, 'closing' | 'tenancy' | 'observation'>,
): GatewayApiServers | undefined {
  const apiServer = apiServerAt(flags);
  if (!tenancy && !apiServer) return undefined;
  const parts = { hubId: '', apiServer, ownPorts: portsOfProcess(flags), tenancy, observation };
  const servers = apiServersOf(parts);
  closing.defer(followApiServers(servers, parts));
  const links = new ApiServerLinks({ hubId: '', apiServers: servers, events: observation.events });
  closing.defer(() => {
    servers.close();
    links.close();
  });
  return { servers, links };
}

/** Loads the code that reads tenants' files and tokens only where there are some: it is a third of a server's code. */
function tenancyCode() {
  return import('./tenancy/start-tenancy.ts');
}

/** Loads Redis' client only now: it takes 8 MB, which a server without Redis saves. */
async function joinedRegistry(flags: ServerValues, events: PlaneEvents): Promise<Registry> {
  const { redisRegistry } = await import('@isthmus/directory/redis');
  const fault = (error: Error | undefined) => events.emit('certificate:failure', 'redis', 'credentials', error);
  return redisRegistry({ ...redisOptions(flags), fault });
}

async function drainRoles({ gateway, hub, apiServers, instruments }: Server): Promise<void> {
  apiServers?.links.drain();
  const drained = gateway?.drain();
  // The last callers still find the hub's sessions.
  await gateway?.hide();
  await Promise.all([drained, hub?.drain()]);
  await instruments.tunnels.idle();
}

/** Opens the ports for operators and enters the plane's list of members. */
async function startOperations(
  name: string,
  server: Server,
  { log, flags: inForce }: Context<ProgramLogger>,
  closing: Closing,
): Promise<void> {
  const { flags, instruments, registry, directory, plane, gateway, hub } = server;
  const { events, tunnels, recent, certificates } = instruments;
  const roles = ROLES[server.role];
  const own = memberOf(flags, roles, VERSION);
  const losses = new Losses(events, recent, directory, gateway !== undefined);
  const roster = new Roster(registry, {
    own,
    looked: (members) => losses.listed(members),
  });
  closing.defer(() => roster.close());
  const sessionCount = () => (gateway ? directory.size : (hub?.sessions.size ?? 0));
  closing.defer(recent.follow(() => ({ sessions: sessionCount(), tunnels: tunnels.size })));
  const backend: AdminBackend = {
    identity: identityOf(server, name),
    admission: () => (gateway ?? hub)?.admission ?? 'open',
    checks: () => checks(server),
    recent,
    notices: () => [...certificates.notices(), ...(server.tenancy?.views.notices() ?? [])],
    metrics: () => server.metrics.render(),
    flags: inForce,
    log,
    sessions: () => knownSessions(server),
    sessionCount,
    tunnels: () => tunnels,
    kick: {
      tunnel: (dialId, reason) => tunnels.abort(dialId, reason),
      ...(hub && {
        sessions(which, reason) {
          // Otherwise, tunnels would go on through the agent's other sessions.
          const own = ({ sessionId, agentId, hubId, dial: { tenant } }: TunnelInfo) =>
            hubId === hub.hubId && which({ sessionId, agentId, tenant });
          tunnels.abortEach(own, reason);
          return hub.sessions.kick(which, reason);
        },
      }),
    },
    ...(gateway && { routing: gateway.routing, holds: () => gateway.holds() }),
    operated: (operation) => events.emit('operation', operation),
    plane: plane.part(roster),
    quarantine: quarantineIn(registry, directory),
    ...(server.tenancy && { tenants: server.tenancy.views.part(server) }),
    ask: server.questions.ask,
    drain: () => void drainRoles(server),
    plan: () => ({
      sessions: hub?.sessions.size ?? 0,
      moves: hub?.moves() ?? [],
      gracefulMs: flags['graceful-shutdown-timeout'],
      idleMs: (gateway && flags['drain-idle-timeout']) ?? 0,
    }),
  };
  server.questions.serve(answersOf(backend, 'all'));
  await operations({
    ...operatorPorts(flags, events),
    unready: SERVER_UNREADY,
    metrics: server.metrics.render,
    backend,
    log,
    refused: (...refusal) => events.emit('refused', ...refusal),
    closing,
  });
  registry.join(own);
}

function operatorPorts(flags: ServerValues, events: PlaneEvents) {
  const files = adminTls(flags);
  const tls = files && { where: 'admin' as const, files: { ...files, ...tlsPolicy(flags) }, events };
  return {
    health: { host: flags['health-bind-address'], port: flags['health-port'] },
    admin: {
      host: flags['admin-bind-address'],
      port: flags['admin-port'],
      path: flags['admin-uds-name'] || undefined,
      tls: tls && ((...rest: Parameters<AdminTls>) => tlsServer(tls, ...rest)),
    },
    console: { when: flags.console, traceUrl: flags['console-trace-url'] },
    profiling: flags['enable-profiling'],
  };
}

/** What it says of itself on its admin port. */
function identityOf({ role, flags, hub }: Server, program: string): Identity {
  const { 'server-id': memberId, zone, 'redis-url': redis } = flags;
  const hubId = hub ? memberId : '';
  return { program, roles: ROLES[role], memberId, hubId, agentId: '', zone, plane: redis === '' ? '' : flags.plane };
}

/** Yields the hub's own sessions and those that the gateway knows of other hubs. */
function* knownSessions({ gateway, hub, directory }: Server): Iterable<KnownSession> {
  if (hub) yield* hub.sessions.list();
  if (!gateway) return;
  for (const session of directory.sessions()) if (session.hubId !== hub?.hubId) yield session;
}

function checks({ gateway, hub, plane, directory, tenancy }: Server): Check[] {
  const found: Check[] = [];
  if (gateway) found.push(admissionCheck(gateway.admission), gateway.sockets);
  else if (hub) found.push(admissionCheck(hub.admission));
  found.push(registryCheck(plane.following));
  if (hub) found.push(hub.registration);
  if (tenancy) found.push(tenancy.views.check({ gateway, hub }));
  if (gateway) {
    // Upstream's server is ready once it has an agent (docs/adr/0015). A gateway lets dials wait for one, and with many tenants
    // one without agents is no reason to send the callers of the others elsewhere.
    found.push(sessionsCheck(directory, hub && !tenancy ? gateway.routing.tenant : undefined));
    found.push({ name: 'hubs', ok: plane.linked, detail: plane.links });
  } else if (hub) {
    // A hub without agents is ready. Its agents may come through a load balancer that first checks readiness.
    found.push({ name: 'sessions', ok: true, detail: countSessions(hub.sessions.tenants) });
  }
  return found;
}

/** What observes a server. */
interface ServerInstruments extends Instruments {
  readonly recent: Recent;
  readonly certificates: CertificateEnds;
}

/** Makes the instruments that a server's flags ask for. They stop after the roles, so that tunnels cut at the end still get their records. */
async function serverInstruments(
  closing: Closing,
  source: { readonly program: string; readonly role: 'gateway' | 'hub' | 'server'; readonly version: string },
  flags: ServerValues,
  log: ProgramLogger,
): Promise<ServerInstruments> {
  const hasCallers = source.role !== 'hub';
  // Without tenants, a gateway's trail has only dials.
  const of = { dials: hasCallers, others: !hasCallers || flags['tenants-dir'] !== '' };
  const id = flags['server-id'];
  const audit = { process: id, of, log: flags['audit-log'] };
  const slow = hasCallers && { traceSlow: flags['trace-slow'] };
  const instruments = await instrument({ ...source, log, audit, ...slow }, closing);
  const { events } = instruments;
  const recent = new Recent(events, { role: hasCallers ? 'gateway' : 'hub', id });
  return { ...instruments, recent, certificates: new CertificateEnds(events) };
}
