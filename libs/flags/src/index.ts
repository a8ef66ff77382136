export { faultOfSocketPath, hiddenSocket } from './files.ts';
export { FlagError, type FlagTable, type Values } from './flag.ts';
export { helpText } from './help.ts';
export {
  adminTls,
  callerPorts,
  callerTls,
  memberOf,
  peerLinks,
  peerTls,
  redisOptions,
  redisTls,
  tlsPolicy,
} from './options.ts';
export { type FlagInForce, flagsInForce, parseFlags } from './parse.ts';
export {
  type AgentValues,
  backendHub,
  frontendGateway,
  type GatewayValues,
  type HoldValues,
  type HubValues,
  isthmusHold,
  isthmusTenantsSync,
  listenersOf,
  PROGRAMS,
  type ProgramFlags,
  proxyAgent,
  proxyServer,
  type ServerValues,
  type SyncValues,
  serverFlags,
} from './programs.ts';
export { readDuration } from './syntax.ts';
export {
  type ApiServerListening,
  apiServerAt,
  apiServerListening,
  ownPlaces,
  portsOfProcess,
} from './topics/api-server.ts';
export { type GatewayPlace, parseGateways, proxyNetworks } from './topics/callers.ts';
export { resumeOptions } from './topics/common.ts';
export { parseDestinations, parseDirect } from './topics/destinations.ts';
export { hubSocket } from './topics/plane.ts';
export { parseLabels, parseStrategies } from './topics/server.ts';
