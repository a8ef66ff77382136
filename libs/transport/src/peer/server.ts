import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { remoteOf, type TlsSettings } from '@isthmus/runtime';
import { type Dial, GATEWAY_NAME, type PlaneEvents } from '@isthmus/tunnel';
import { LinkServer } from '../link/server.ts';
import { fromTheStart, type Listener, listen } from '../listen/listen.ts';
import { peerSubject } from '../tls/certificate.ts';

export interface PeerServerOptions {
  readonly host: string;
  readonly port: number;
  /** With `ca`: serves only gateways whose certificate is from it and proves a gateway's role. */
  readonly tls: TlsSettings;
  readonly dial: Dial;
  readonly events: PlaneEvents;
}

export interface PeerServer extends Pick<Listener, 'address' | 'connections' | 'stop' | 'close'> {
  /** Accepts no new gateways, asks the connected ones to dial elsewhere, and lets running tunnels finish. */
  drain(): void;
}

/** The hub's peer port: accepts gateways' links and serves their dials. */
export async function servePeers({ host, port, tls, dial, events }: PeerServerOptions): Promise<PeerServer> {
  const links = new Set<LinkServer>();
  let draining = false;
  const accept = (socket: Socket) => {
    const peer = `gateway ${peerSubject(socket as TLSSocket) ?? remoteOf(socket)}`;
    const link = new LinkServer({ socket, peer, role: 'hub', dial, events });
    links.add(link);
    void link.closed.then(() => links.delete(link));
    // It connected while the hub began to drain.
    if (draining) link.close();
  };
  const http2 = fromTheStart(accept);
  const listener = await listen({ address: { host, port }, tls, role: GATEWAY_NAME, http2, events, name: 'peers' });
  return {
    address: listener.address,
    connections: listener.connections,
    stop: listener.stop,
    drain() {
      draining = true;
      void listener.stop();
      for (const link of links) link.close();
    },
    async close() {
      for (const link of links) link.destroy(new Error('hub stops'));
      await listener.close();
    },
  };
}
