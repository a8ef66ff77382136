import { FLAGS } from './defaults.ts';
import { FlagError, type FlagTable, type Values } from './flag.ts';
import { writeDuration } from './syntax.ts';
import {
  agentDrain,
  agentHealth,
  agentIdentity,
  agentLeases,
  agentQueues,
  checkAgentIdentity,
  checkLeaseSelector,
  checkServerConnection,
  checkSynchronisation,
  serverConnection,
  synchronisation,
} from './topics/agent.ts';
import {
  agentAuthentication,
  agentLimits,
  agentListening,
  checkAgents,
  clusterTls,
  kubernetesRate,
} from './topics/agents.ts';
import {
  callerListening,
  callerTls,
  callerTokens,
  checkCallers,
  checkHold,
  gateways,
  proxyNetworks,
  proxyProtocol,
} from './topics/callers.ts';
import {
  about,
  audit,
  checkAudit,
  checkDebug,
  checkKubeconfig,
  checkLogging,
  checkResume,
  debug,
  kubeconfig,
  kubernetesContentType,
  logging,
  resume,
  tracing,
} from './topics/common.ts';
import { destinations, directDials, parseDestinations, parseDirect } from './topics/destinations.ts';
import {
  adminAdvertising,
  advertising,
  checkAdminAdvertising,
  checkAdvertising,
  checkMembership,
  checkPeerListener,
  checkPeerSockets,
  checkPeerTls,
  checkRedisCredentials,
  checkRedisTls,
  membership,
  peerListening,
  peerSockets,
  peerTls,
  redisCredentials,
  redisTls,
  requirePeerTls,
  requireRegistry,
  tenants,
} from './topics/plane.ts';
import {
  checkConsole,
  checkLeases,
  checkServerCount,
  checkServerId,
  consolePage,
  drainIdle,
  gatewayIdentity,
  parseStrategies,
  queues,
  routing,
  serverCount,
  serverHealth,
  serverIdentity,
  serverLeases,
  shutdown,
  shutdownDelay,
} from './topics/server.ts';
import { adminTls, checkAdminTls, checkTlsPolicy, tlsPolicy, warnOfSharedAuthorities } from './topics/tls.ts';

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
const callerSide = { ...callerListening, ...callerTls, ...callerTokens, ...directDials };

/** How dials find their way, and how their tunnels go on. */
const dials = { ...routing, ...resume, ...drainIdle, ...tracing };

/** What serves agents, and gateways of the plane. */
const agentSide = {
  ...agentListening,
  ...peerListening,
  ...clusterTls,
  ...serverIdentity,
  ...serverCount,
  ...agentAuthentication,
  ...agentLimits,
  ...advertising,
  ...serverLeases,
  ...kubeconfig,
  ...kubernetesRate,
  ...kubernetesContentType,
};

/** What gateways and hubs share. */
const bothSides = {
  ...proxyProtocol,
  ...serverHealth,
  ...consolePage,
  ...peerTls,
  ...peerSockets,
  ...redisCredentials,
  ...redisTls,
  ...adminTls,
  ...tlsPolicy,
  ...shutdownDelay,
  ...membership,
  ...tenants,
  ...adminAdvertising,
  ...debug,
  ...logging,
  ...audit,
  ...about,
};

/** The all-in-one server: upstream's flags and those of a plane. */
export const serverFlags = { ...callerSide, ...agentSide, ...dials, ...shutdown(0), ...queues, ...bothSides };

export const gatewayFlags = { ...callerSide, ...gatewayIdentity, ...dials, ...shutdown(FLAGS.drainMs), ...bothSides };

export const hubFlags = { ...agentSide, ...shutdown(FLAGS.drainMs), ...bothSides };

export const agentFlags = {
  ...serverConnection,
  ...agentHealth,
  ...adminTls,
  ...agentIdentity,
  ...synchronisation,
  ...agentLeases,
  ...kubeconfig,
  ...kubernetesContentType,
  ...agentQueues,
  ...agentDrain,
  ...drainIdle,
  ...resume,
  ...destinations,
  ...debug,
  ...logging,
  ...audit,
  ...about,
};

const { 'backend-dial-timeout': dialTimeout, 'half-closed-timeout': halfClosed } = routing;

/** Those of a gateway where they mean the same. No port is open unless it is named. */
const holdFlags = {
  ...callerListening,
  'server-port': { ...callerListening['server-port'], initial: 0 },
  ...callerTls,
  ...gateways,
  'health-port': { ...serverHealth['health-port'], initial: 8096 },
  'health-bind-address': serverHealth['health-bind-address'],
  'backend-dial-timeout': dialTimeout,
  'half-closed-timeout': halfClosed,
  ...resume,
  ...shutdown(FLAGS.holdDrainMs),
  ...tlsPolicy,
  ...logging,
  ...about,
};

export type HoldValues = Values<typeof holdFlags>;

export type ServerValues = Values<typeof serverFlags>;

export type GatewayValues = Values<typeof gatewayFlags>;

export type HubValues = Values<typeof hubFlags>;

export type AgentValues = Values<typeof agentFlags>;

export const proxyServer: ProgramFlags<typeof serverFlags> = {
  name: 'proxy-server',
  summary:
    'Gateway and hub in one process: accepts API servers and agents, and carries dials from API servers to agents.',
  flags: serverFlags,
  check(values, warn) {
    const joins = values['redis-url'] !== '';
    // Without a plane it has no peers, and its peer port stays closed.
    checkPorts(serverFlags, values, [...closedAdmin(values), ...(joins ? [] : ['peer-port'])]);
    checkDurations(serverFlags, values);
    checkCallers(values, warn);
    parseDirect(values);
    checkServerSide(values, warn);
    checkAudit(values);
    parseStrategies(values['proxy-strategies']);
    checkResume(values);
    checkHubSide(values, warn);
    checkQueues(values);
    if (joins) checkPeerListener(values);
    checkPeerSockets(values, values['advertise-address']);
  },
};

export const frontendGateway: ProgramFlags<typeof gatewayFlags> = {
  name: 'frontend-gw',
  summary: 'Gateway of a plane: accepts API servers, and carries their dials to agents through any hub.',
  flags: gatewayFlags,
  check(values, warn) {
    checkPorts(gatewayFlags, values, closedAdmin(values));
    checkDurations(gatewayFlags, values);
    checkCallers(values, warn);
    parseDirect(values);
    checkServerSide(values, warn);
    checkAudit(values);
    parseStrategies(values['proxy-strategies']);
    checkResume(values);
    requireRegistry(values, 'a gateway finds hubs and agents in the registry');
    requirePeerTls(values);
    checkPeerSockets(values);
  },
};

export const backendHub: ProgramFlags<typeof hubFlags> = {
  name: 'backend-hub',
  summary: 'Hub of a plane: accepts agents, and relays the tunnels of all gateways to them.',
  flags: hubFlags,
  check(values, warn) {
    checkPorts(hubFlags, values, closedAdmin(values));
    checkDurations(hubFlags, values);
    checkServerSide(values, warn);
    checkAudit(values);
    checkHubSide(values, warn);
    requireRegistry(values, 'gateways find a hub in the registry');
    checkPeerListener(values);
    checkPeerSockets(values, values['advertise-address']);
  },
};

export const proxyAgent: ProgramFlags<typeof agentFlags> = {
  name: 'proxy-agent',
  summary: 'Agent: connects to servers, and opens the connections that callers request in its own network.',
  flags: agentFlags,
  check(values, warn) {
    checkPorts(agentFlags, values, closedAdmin(values));
    parseDestinations(values);
    checkDurations(agentFlags, values);
    checkServerConnection(values);
    checkAgentIdentity(values, warn);
    checkSynchronisation(values);
    checkResume(values);
    checkAdminTls(values);
    checkLeaseSelector(values);
    checkKubeconfig(values);
    checkQueues(values);
    checkDebug(values);
    checkLogging(values, warn);
    checkAudit(values);
  },
};

export const isthmusHold: ProgramFlags<typeof holdFlags> = {
  name: 'isthmus hold',
  summary:
    "The callers' end of a plane: keeps API servers' connections and their ends of tunnels while gateways are changed, die or hang.",
  flags: holdFlags,
  check(values, warn) {
    checkPorts(holdFlags, values);
    checkDurations(holdFlags, values);
    checkHold(values, warn);
    checkResume(values);
    checkTlsPolicy(values, warn);
    checkLogging(values, warn);
  },
};

export const PROGRAMS: readonly ProgramFlags<FlagTable>[] = [proxyServer, frontendGateway, backendHub, proxyAgent];

/** A unix socket replaces the TCP port. */
function closedAdmin(values: { readonly 'admin-uds-name': string }): string[] {
  return values['admin-uds-name'] === '' ? [] : ['admin-port', 'admin-server-port'];
}

type Common = Pick<HubValues, keyof GatewayValues & keyof HubValues>;

function checkServerSide(values: Common, warn: (message: string) => void): void {
  checkServerId(values);
  proxyNetworks(values);
  checkTlsPolicy(values, warn);
  checkMembership(values);
  checkPeerTls(values);
  checkRedisCredentials(values);
  checkRedisTls(values);
  checkAdminTls(values);
  warnOfSharedAuthorities(values, warn);
  checkAdminAdvertising(values);
  checkConsole(values);
  checkDebug(values);
  checkLogging(values, warn);
}

function checkHubSide(values: HubValues, warn: (message: string) => void): void {
  checkAgents(values, warn);
  checkKubeconfig(values);
  checkServerCount(values);
  checkLeases(values);
  checkAdvertising(values);
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

interface Listener {
  readonly flag: string;
  readonly bind: string;
  readonly host: string;
  readonly port: number;
}

/** Returns the listeners that a table's values ask for. */
export function listenersOf(table: FlagTable, values: Readonly<Record<string, unknown>>): Listener[] {
  return Object.entries(table).flatMap(([flag, { port: listener }]) => {
    if (!listener) return [];
    const port = values[flag] as number;
    return [{ flag, bind: listener.bind, host: values[listener.bind] as string, port }];
  });
}

/**
 * Checks every listener's port: it is within its range, and no two listeners share one.
 * @param closed flags of listeners that will not be opened
 */
function checkPorts(table: FlagTable, values: Readonly<Record<string, unknown>>, closed: readonly string[] = []): void {
  const taken: Listener[] = [];
  for (const listener of listenersOf(table, values)) {
    const { flag, port, host } = listener;
    if (closed.includes(flag)) continue;
    const rule = table[flag]?.port;
    if (!rule || (rule.optional && port === 0)) continue;
    if (port < rule.lowest || port > rule.highest) {
      const off = rule.optional ? ', or 0 for none' : '';
      throw new FlagError(flag, `bad port ${port}: want ${rule.lowest} to ${rule.highest}${off}`);
    }
    const other = taken.find((one) => one.port === port && (one.host === host || one.host === '' || host === ''));
    if (other) throw new FlagError(flag, `--${other.flag} uses port ${port} too`);
    taken.push(listener);
  }
}
