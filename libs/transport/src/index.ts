export { type ApiServer, ApiServers } from './api-server/api-servers.ts';
export { ApiServerGateways } from './api-server/gateways.ts';
export { HelloEnd } from './api-server/hello-end.ts';
export { API_SERVER, ApiServerLinks } from './api-server/links.ts';
export { localOf } from './api-server/proxy-header.ts';
export { type CallerPort, Callers, type CallersOptions, type PortOwner } from './callers.ts';
export { connectEdge } from './connect.ts';
export { TRANSPORT } from './defaults.ts';
export type { NextHopConnection } from './dials.ts';
export { connectError, endpointDial } from './endpoint.ts';
export { type Authenticate, agentService, type PacketAgent } from './grpc/agents.ts';
export { connectPackets } from './grpc/client.ts';
export { GrpcServer } from './grpc/server.ts';
export { type ProxyFor, proxyFromEnvironment, throughProxy } from './http-proxy.ts';
export { RequestRefused } from './http1.ts';
export { AgentLimitError, type IdentifierLimits, parseIdentifiers, type Reach, refusedWhere } from './identifiers.ts';
export { LinkClient } from './link/client.ts';
export {
  Allowances,
  Control,
  type ControlMessage,
  type CutMessage,
  encodeControl,
  type HubMember,
  type MembershipMessage,
  type PolicyRules,
} from './link/control.ts';
export { heldAnswers, requestHoldLink } from './link/hold.ts';
export { KeptLink } from './link/kept.ts';
export { LinkServer } from './link/server.ts';
export {
  type AgentHello,
  DEFAULT_TENANT,
  type HubHello,
  LinkRefused,
  pingAtRest,
  requestLink,
  upgradeServer,
} from './link/upgrade.ts';
export {
  anyoneOf,
  type CallerIdentity,
  type ConnectionPeer,
  type IdentifyByToken,
  type IdentifyCaller,
  type ListenAddress,
  type Listener,
  listen,
  requests,
} from './listen.ts';
export { PacketClient } from './packets/dial.ts';
export { PacketServer } from './packets/serve.ts';
export { PeerLinks, type PeerLinksOptions } from './peer-links.ts';
export { type PeerServer, type PeerServerOptions, servePeers } from './peer-server.ts';
export { readersOf, resetSocket, SocketEnd } from './socket-end.ts';
export { serverNameOf, shownCertificate } from './tls/admit.ts';
export {
  type ChooseTls,
  connectSecurely,
  type OtherCertificate,
  tlsChoice,
  tlsServer,
  watchCertificate,
} from './tls/renewal.ts';
