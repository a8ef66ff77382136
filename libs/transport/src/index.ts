export type { Doors } from './admit.ts';
export * from './connect.ts';
export * from './dial-id.ts';
export * from './endpoint.ts';
export type { ConnectPacketsOptions, PacketServerLink } from './grpc/agent-client.ts';
export * from './grpc/agent-service.ts';
export * from './grpc/connect-packets.ts';
export type { GrpcPeer } from './grpc/peer.ts';
export * from './grpc/proxy-service.ts';
export * from './grpc/server.ts';
export type { GrpcService } from './grpc/service.ts';
export * from './identifiers.ts';
export * from './link/client.ts';
export { type ControlMessage, encodeControl } from './link/control.ts';
export {
  type HubMember,
  MAX_HUBS_IN_MESSAGE,
  MEMBERSHIP_BEAT,
  MEMBERSHIP_TTL,
  type MembershipMessage,
} from './link/membership.ts';
export * from './link/server.ts';
export * from './link/upgrade.ts';
export * from './listen.ts';
export * from './packets/channel.ts';
export * from './packets/dial.ts';
export * from './packets/serve.ts';
export * from './peer/client.ts';
export * from './peer/server.ts';
export * from './peer-limit.ts';
export * from './renewal.ts';
export * from './secure-connect.ts';
export * from './tls.ts';
export * from './wire.ts';
