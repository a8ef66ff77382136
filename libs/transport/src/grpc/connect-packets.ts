import type { ConnectPacketsOptions, PacketServerLink } from './agent-client.ts';

/** `connectPackets` of agent-client.ts, with grpc-js loaded by the first call: most agents never meet a Go server, and it takes 6 MB. */
export async function connectPackets(options: ConnectPacketsOptions): Promise<PacketServerLink> {
  const client = await import('./agent-client.ts');
  return client.connectPackets(options);
}
