import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { guardListener, guardServer, remoteOf, type StrangerLimits, Strangers } from '@isthmus/runtime';
import { type Dial, GATEWAY_NAME, type PlaneEvents } from '@isthmus/tunnel';
import { LinkServer } from '../link/server.ts';
import type { Listener } from '../listen/listen.ts';
import { tlsServer } from '../tls/renewal.ts';
import { peerSubject, type TlsSettings } from '../tls/tls.ts';

/** Gateways that may be amid their handshakes at once: a plane has tens of them, each with one link to a hub. */
const STRANGERS: StrangerLimits = {
  ...{ most: 1024, mostOfSource: 512, deadlineMs: 30_000 },
  names: {
    most: 'let fewer addresses reach this port',
    mostOfSource: 'look what runs there, or keep it from this port',
  },
};

export interface PeerServerOptions {
  readonly host: string;
  readonly port: number;
  /** With `ca`: only gateways with a certificate from it are served, which must prove a gateway's role. */
  readonly tls: TlsSettings;
  readonly dial: Dial;
  readonly events: PlaneEvents;
}

export interface PeerServer extends Omit<Listener, 'idle' | 'local' | 'lost' | 'strangers'> {
  /** Takes no new gateway, asks those that are there to dial elsewhere and lets running tunnels finish. */
  drain(): void;
}

/** The hub's peer port: takes gateways' links and serves their dials. */
export async function servePeers({ host, port, tls: files, dial, events }: PeerServerOptions): Promise<PeerServer> {
  const links = new Set<LinkServer>();
  const connections = new Set<TLSSocket>();
  let draining = false;
  const strangers = new Strangers(STRANGERS, (remote, error) => events.emit('refused', 'peers waiting', remote, error));
  const accept = (socket: TLSSocket) => {
    strangers.leave(socket);
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
    if (socket.alpnProtocol !== 'h2') {
      events.emit('refused', 'peers', remoteOf(socket), new Error('a peer must speak HTTP/2'));
      socket.destroy();
      return;
    }
    socket.setNoDelay(true);
    const peer = `gateway ${peerSubject(socket) ?? remoteOf(socket)}`;
    const link = new LinkServer({ socket, peer, role: 'hub', dial, events });
    links.add(link);
    void link.closed.then(() => links.delete(link));
    // Its handshake was under way when the hub began to drain.
    if (draining) link.close();
  };
  const server = tlsServer(
    { where: 'peers', files, events },
    { ALPNProtocols: ['h2'], handshakeTimeout: 10_000 },
    { accept, refused: (remote, error) => events.emit('refused', 'peers', remote, error), role: GATEWAY_NAME },
  );
  guardServer(server, strangers);
  server.listen(port, host || undefined);
  await once(server, 'listening');
  const bound = server.address() as AddressInfo;
  const unguard = guardListener(server, bound, (error) => events.emit('refused', 'peers', '', error));
  const stop = () => {
    unguard();
    server.close();
  };
  return {
    address: `${host || '0.0.0.0'}:${bound.port}`,
    connections,
    drain() {
      draining = true;
      stop();
      for (const link of links) link.close();
    },
    async stop() {
      stop();
    },
    async close() {
      for (const link of links) link.destroy(new Error('hub stops'));
      for (const socket of connections) socket.destroy();
      stop();
    },
  };
}
