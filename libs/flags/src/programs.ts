import { checkDurations, checkQueues } from './check.ts';
import type { FlagTable, Values } from './flag.ts';
import { checkPorts } from './ports.ts';
import {
  agentHealth,
  agentIdentity,
  agentKubernetes,
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
  checkKubeconfig,
  clusterTls,
  kubernetes,
  kubernetesContentType,
} from './topics/agents.ts';
import { audit, checkAudit } from './topics/audit.ts';
import { callerListening, callerTls, checkCallers } from './topics/callers.ts';
import { checkConsole, consolePage } from './topics/console.ts';
import { about, checkDebug, debug } from './topics/debug.ts';
import { destinations, parseDestinations } from './topics/destinations.ts';
import { checkLogging, logging } from './topics/logging.ts';
import { checkPeerSockets, peerSockets } from './topics/peer-sockets.ts';
import {
  adminAdvertising,
  advertising,
  checkAdminAdvertising,
  checkAdvertising,
  checkMembership,
  checkPeerListener,
  checkPeerTls,
  checkRedisCredentials,
  checkRedisTls,
  membership,
  peerListening,
  peerTls,
  redisCredentials,
  redisTls,
  requirePeerTls,
  requireRegistry,
  tenants,
} from './topics/plane.ts';
import { proxyNetworks, proxyProtocol } from './topics/proxy-protocol.ts';
import { checkResume, resume } from './topics/resume.ts';
import {
  checkLeases,
  checkServerCount,
  checkServerId,
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
import { tracing } from './topics/tracing.ts';

/** The flags of a program. */
export interface ProgramFlags<T extends FlagTable> {
  readonly name: string;
  /** One sentence for --help. */
  readonly summary: string;
  readonly flags: T;
  /** Checks the values and the files they name. @throws FlagError */
  check(values: Values<T>, warn: (message: string) => void): void;
}

/** Long enough for the requests of an API server, and shorter than the 30 s after which Kubernetes kills a pod. */
const DRAIN_MS = 25_000;

/** What serves callers. */
const callerSide = { ...callerListening, ...callerTls };

/** How dials find their way, and how their tunnels go on. */
const dials = { ...routing, ...resume, ...tracing };

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
  ...kubernetes,
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
export const gatewayFlags = { ...callerSide, ...gatewayIdentity, ...dials, ...shutdown(DRAIN_MS), ...bothSides };
export const hubFlags = { ...agentSide, ...shutdown(DRAIN_MS), ...bothSides };

export const agentFlags = {
  ...serverConnection,
  ...agentHealth,
  ...adminTls,
  ...agentIdentity,
  ...synchronisation,
  ...agentLeases,
  ...agentKubernetes,
  ...kubernetesContentType,
  ...agentQueues,
  ...resume,
  ...destinations,
  ...debug,
  ...logging,
  ...audit,
  ...about,
};

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
