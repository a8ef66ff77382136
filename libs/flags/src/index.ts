export { FlagError } from './error.ts';
export type { FlagTable, Values } from './flag.ts';
export { helpText } from './help.ts';
export { type FlagInForce, flagsInForce } from './in-force.ts';
export { parseLabels } from './labels.ts';
export { memberOf, peerLinks, peerTls, redisOptions, redisTls, tlsPolicy } from './options.ts';
export { parseFlags } from './parse.ts';
export { listenersOf } from './ports.ts';
export {
  type AgentValues,
  backendHub,
  frontendGateway,
  type GatewayValues,
  type HubValues,
  PROGRAMS,
  type ProgramFlags,
  proxyAgent,
  proxyServer,
  type ServerValues,
  serverFlags,
} from './programs.ts';
export { faultOfSocketPath, hiddenSocket } from './socket-path.ts';
export { readDuration } from './syntax.ts';
export { parseConsole } from './topics/console.ts';
export { parseDestinations } from './topics/destinations.ts';
export { hubSocket } from './topics/peer-sockets.ts';
export { proxyNetworks } from './topics/proxy-protocol.ts';
export { resumeOptions } from './topics/resume.ts';
export { parseStrategies } from './topics/server.ts';
