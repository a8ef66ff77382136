import { FLAGS } from './defaults.ts';
import { FlagError, type FlagTable, type ListenerPort, type Values } from './flag.ts';
import { writeDuration } from './syntax.ts';
import * as agent from './topics/agent.ts';
import * as agentPort from './topics/agent-port.ts';
import * as apiServers from './topics/api-server.ts';
import * as callers from './topics/callers.ts';
import * as common from './topics/common.ts';
import { destinations, directDials, parseDestinations, parseDirect } from './topics/destinations.ts';
import * as plane from './topics/plane.ts';
import * as server from './topics/server.ts';
import * as sync from './topics/sync.ts';
import * as tls from './topics/tls.ts';

/** The flags of a program. */
export interface ProgramFlags<T extends FlagTable> {
  readonly name: string;
  /** One sentence for --help. */
  readonly summary: string;
  readonly flags: T;
  /** Checks the values and the files they name. @throws FlagError */
  check(values: Values<T>, warn: (message: string) => void): void;
}

/** What serves callers. */
const callerSide = { ...callers.callerListening, ...callers.callerTls, ...callers.callerTokens, ...directDials };

/** How dials find their way, and how their tunnels go on. */
const dials = { ...server.routing, ...common.resume, ...server.drainIdle, ...common.tracing };

/** What serves agents, and gateways of the plane. */
const agentSide = {
  ...agentPort.agentListening,
  ...apiServers.apiServer,
  ...plane.peerListening,
  ...agentPort.clusterTls,
  ...server.serverIdentity,
  ...server.serverCount,
  ...agentPort.agents,
  ...plane.advertising,
  ...server.serverLeases,
  ...common.kubeconfig,
  ...agentPort.kubernetesRate,
  ...common.kubernetesContentType,
};

/** What gateways and hubs share. */
const bothSides = {
  ...callers.proxyProtocol,
  ...server.serverPorts,
  ...plane.peerTls,
  ...plane.peerSockets,
  ...plane.redisCredentials,
  ...plane.redisTls,
  ...tls.adminTls,
  ...tls.tlsPolicy,
  ...server.shutdownDelay,
  ...plane.membership,
  ...plane.tenants,
  ...plane.adminAdvertising,
  ...common.debug,
  ...common.logging,
  ...common.audit,
  ...common.about,
};

/** The all-in-one server: upstream's flags and those of a plane. */
export const serverFlags = {
  ...callerSide,
  ...agentSide,
  ...dials,
  ...server.shutdown(0),
  ...server.queues,
  ...bothSides,
};

export const gatewayFlags = {
  ...callerSide,
  ...apiServers.apiServerOfGateway,
  ...server.gatewayIdentity,
  ...dials,
  ...server.shutdown(FLAGS.drainMs),
  ...bothSides,
};

export const hubFlags = { ...agentSide, ...server.shutdown(FLAGS.drainMs), ...bothSides };

export const agentFlags = {
  ...agent.serverConnection,
  ...apiServers.apiServerOfAgent,
  ...agent.agentHealth,
  ...tls.adminTls,
  ...agent.agentIdentity,
  ...agent.synchronisation,
  ...agent.agentLeases,
  ...common.kubeconfig,
  ...common.kubernetesContentType,
  ...agent.agentQueues,
  ...agent.agentDrain,
  ...server.drainIdle,
  ...common.resume,
  ...destinations,
  ...common.debug,
  ...common.logging,
  ...common.audit,
  ...common.about,
};

const { 'backend-dial-timeout': dialTimeout, 'half-closed-timeout': halfClosed } = server.routing;

/** Those of a gateway where they mean the same. No port is open unless it is named. */
const holdFlags = {
  ...callers.callerListening,
  'server-port': { ...callers.callerListening['server-port'], initial: 0 },
  ...callers.callerTls,
  ...callers.gateways,
  'health-port': { ...server.serverPorts['health-port'], initial: 8096 },
  'health-bind-address': server.serverPorts['health-bind-address'],
  'backend-dial-timeout': dialTimeout,
  'half-closed-timeout': halfClosed,
  ...common.resume,
  ...server.drainIdle,
  ...server.shutdown(FLAGS.holdDrainMs),
  ...tls.tlsPolicy,
  ...common.logging,
  ...common.about,
};

const syncFlags = {
  ...sync.tenantsSync,
  'health-port': { ...server.serverPorts['health-port'], initial: 8098 },
  'health-bind-address': server.serverPorts['health-bind-address'],
  ...common.kubeconfig,
  ...common.logging,
  ...common.about,
};

export type ServerValues = Values<typeof serverFlags>;
export type GatewayValues = Values<typeof gatewayFlags>;
export type HubValues = Values<typeof hubFlags>;
export type AgentValues = Values<typeof agentFlags>;
export type HoldValues = Values<typeof holdFlags>;
export type SyncValues = Values<typeof syncFlags>;

type Check<V> = (values: V, warn: (message: string) => void) => unknown;

const ofCallers: readonly Check<GatewayValues>[] = [
  callers.checkCallers,
  parseDirect,
  (values) => server.parseStrategies(values['proxy-strategies']),
  common.checkResume,
];

const ofAgents: readonly Check<HubValues>[] = [
  agentPort.checkAgents,
  common.checkKubeconfig,
  server.checkServerCount,
  (values) => server.parseLabels(values['lease-label']),
  plane.checkAdvertising,
  plane.checkPeerListener,
  apiServers.checkApiServer,
];

const ofBoth: readonly Check<Pick<HubValues, keyof GatewayValues & keyof HubValues>>[] = [
  (values) => server.checkId('server-id', values['server-id']),
  callers.proxyNetworks,
  tls.checkTlsPolicy,
  plane.checkMembership,
  plane.checkPeerTls,
  plane.checkRedisCredentials,
  plane.checkRedisTls,
  tls.checkAdminTls,
  tls.warnOfSharedAuthorities,
  plane.checkAdminAdvertising,
  server.checkConsole,
  common.checkDebug,
  common.checkLogging,
  common.checkAudit,
  plane.checkPeerSockets,
];

/** @param checks in the order in which an operator hears of faults, behind those of ports and durations */
function program<T extends FlagTable>(
  { name, summary, flags }: Omit<ProgramFlags<T>, 'check'>,
  ...checks: readonly Check<Values<T>>[]
): ProgramFlags<T> {
  const check = (values: Values<T>, warn: (message: string) => void) => {
    checkPorts(flags, values);
    checkDurations(flags, values);
    for (const each of checks) each(values, warn);
  };
  return { name, summary, flags, check };
}

export const proxyServer = program(
  {
    name: 'proxy-server',
    summary:
      'Gateway and hub in one process: accepts API servers and agents, and carries dials from API servers to agents.',
    flags: serverFlags,
  },
  ...ofCallers,
  ...ofBoth,
  ...ofAgents,
  checkQueues,
);

export const frontendGateway = program(
  {
    name: 'frontend-gw',
    summary: 'Gateway of a plane: accepts API servers, and carries their dials to agents through any hub.',
    flags: gatewayFlags,
  },
  ...ofCallers,
  ...ofBoth,
  apiServers.checkApiServer,
  (values) => plane.requireRegistry(values, 'a gateway finds hubs and agents in the registry'),
  plane.requirePeerTls,
);

export const backendHub = program(
  {
    name: 'backend-hub',
    summary: 'Hub of a plane: accepts agents, and relays the tunnels of all gateways to them.',
    flags: hubFlags,
  },
  ...ofBoth,
  ...ofAgents,
  (values) => plane.requireRegistry(values, 'gateways find a hub in the registry'),
);

export const proxyAgent = program(
  {
    name: 'proxy-agent',
    summary: 'Agent: connects to servers, and opens the connections that callers request in its own network.',
    flags: agentFlags,
  },
  parseDestinations,
  agent.checkServerConnection,
  apiServers.apiServerListening,
  agent.checkAgentIdentity,
  agent.checkSynchronisation,
  common.checkResume,
  tls.checkAdminTls,
  agent.checkLeaseSelector,
  common.checkKubeconfig,
  checkQueues,
  common.checkDebug,
  common.checkLogging,
  common.checkAudit,
);

export const isthmusHold = program(
  {
    name: 'isthmus hold',
    summary:
      "The callers' end of a plane: keeps API servers' connections and their ends of tunnels while gateways are changed, die or hang.",
    flags: holdFlags,
  },
  callers.checkHold,
  common.checkResume,
  tls.checkTlsPolicy,
  common.checkLogging,
);

export const isthmusTenantsSync = program(
  {
    name: 'isthmus tenants sync',
    summary: "Writes tenants' files of objects of a Kubernetes API, and of what they name, and follows what changes.",
    flags: syncFlags,
  },
  sync.checkSync,
  common.checkKubeconfig,
  common.checkLogging,
);

export const PROGRAMS: readonly ProgramFlags<FlagTable>[] = [proxyServer, frontendGateway, backendHub, proxyAgent];

/** A unix socket replaces the TCP port of operators. Without a plane there are no peers. */
function closedPorts(values: Readonly<Record<string, unknown>>): string[] {
  return [
    ...(values['admin-uds-name'] ? ['admin-port', 'admin-server-port'] : []),
    ...(values['redis-url'] === '' ? ['peer-port'] : []),
  ];
}

/** Rejects negative durations, which no flag accepts. */
function checkDurations(table: FlagTable, values: Readonly<Record<string, unknown>>): void {
  for (const [flag, { kind }] of Object.entries(table)) {
    const value = values[flag];
    if (kind.name === 'duration' && (value as number) < 0) {
      throw new FlagError(flag, `bad duration ${writeDuration(value as number)}: it must not be negative`);
    }
  }
}

function checkQueues(flags: { readonly 'xfr-channel-size': number }): void {
  const size = flags['xfr-channel-size'];
  if (size <= 0) throw new FlagError('xfr-channel-size', `bad size ${size}: want 1 or more`);
}

/** A listener that values ask for, by the flag that holds its port. */
interface FlagListener extends ListenerPort {
  readonly flag: string;
  readonly host: string;
  readonly port: number;
}

export function listenersOf(table: FlagTable, values: Readonly<Record<string, unknown>>): FlagListener[] {
  return Object.entries(table).flatMap(([flag, { port: rule }]) => {
    return rule ? [{ ...rule, flag, host: values[rule.bind] as string, port: values[flag] as number }] : [];
  });
}

/** Checks the port of every listener that will be opened: it is within its range, and no two listeners share one. */
function checkPorts(table: FlagTable, values: Readonly<Record<string, unknown>>): void {
  const closed = closedPorts(values);
  const taken: FlagListener[] = [];
  for (const listener of listenersOf(table, values)) {
    const { flag, port, host, lowest, highest, optional } = listener;
    if (closed.includes(flag) || (optional && port === 0)) continue;
    if (port < lowest || port > highest) {
      const off = optional ? ', or 0 for none' : '';
      throw new FlagError(flag, `bad port ${port}: want ${lowest} to ${highest}${off}`);
    }
    const other = taken.find((one) => one.port === port && (one.host === host || one.host === '' || host === ''));
    if (other) throw new FlagError(flag, `--${other.flag} uses port ${port} too`);
    taken.push(listener);
  }
}
