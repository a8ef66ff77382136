import type { ConnectPacketsOptions, PacketServerLink } from './agent-client.ts';

/** `connectPackets` of agent-client.ts. The first call loads grpc-js, which takes 6 MB: most agents never meet a Go server. */
export async function connectPackets(options: ConnectPacketsOptions): Promise<PacketServerLink> {
  const client = await import('./agent-client.ts');
  return client.connectPackets(options);
}
