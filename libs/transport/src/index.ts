export { AgentLimitError, refusedWhere } from './agent-limit.ts';
export { type CallerEdgeOptions, connectEdge } from './callers/connect.ts';
export { anyoneOf, type CallerIdentity, type CallerPeer, type Identify } from './callers/identify.ts';
export type { Dialer } from './dial/dialer.ts';
export { endpointDial } from './endpoint/endpoint.ts';
export { type Authenticate, agentService, type PacketAgent } from './grpc/agent-service.ts';
export { connectPackets } from './grpc/connect-packets.ts';
export { type ProxyServiceOptions, proxyService } from './grpc/proxy-service.ts';
export { type GrpcServer, grpcServer } from './grpc/server.ts';
export { type ProxyFor, proxyFromEnvironment } from './http-proxy/http-proxy.ts';
export { throughProxy } from './http-proxy/through-proxy.ts';
export { type IdentifierLimits, ignoredError, parseIdentifiers } from './identifiers.ts';
export { LinkClient } from './link/client.ts';
export { Control, type ControlMessage, encodeControl } from './link/control.ts';
export { LinkRefused } from './link/link-refused.ts';
export {
  type HubMember,
  MAX_HUBS_IN_MESSAGE,
  MEMBERSHIP_BEAT,
  MEMBERSHIP_TTL,
  type MembershipMessage,
} from './link/membership.ts';
export { pingAtRest } from './link/ping-interval.ts';
export type { PolicyRules } from './link/policy.ts';
export { LinkServer } from './link/server.ts';
export {
  type AgentHello,
  DEFAULT_TENANT,
  type HubHello,
  requestLink,
  upgradeServer,
} from './link/upgrade.ts';
export {
  type Accept,
  fromTheStart,
  HANDSHAKES,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  listen,
} from './listen/listen.ts';
export { packetDialer } from './packets/dial.ts';
export { servePackets } from './packets/serve.ts';
export { PeerLinks, type PeerLinksOptions } from './peer/client.ts';
export { type PeerServer, type PeerServerOptions, servePeers } from './peer/server.ts';
export {
  type FollowedTls,
  type FollowTls,
  type TlsChoice,
  tlsChoice,
  tlsServer,
  watchCertificate,
} from './tls/renewal.ts';
export { secureConnect } from './tls/secure-connect.ts';
export { serverNameOf, shownCertificate } from './tls/shown-certificate.ts';
