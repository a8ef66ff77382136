import { createServer, type Server, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import type { Refused } from './bad-requests.ts';

/** Who comes through a TLS server, and who does not. */
export interface AdminDoors {
  readonly accept: (socket: Socket) => void;
  readonly refused: Refused;
}

/** Makes a TLS server that has the admin port's certificates, renewed ones too, and lets in those whose certificate holds. */
export type AdminTls = (options: TlsOptions, doors: AdminDoors) => TlsServer;

export interface AdminListener {
  readonly server: Server;
  /** All connections, including those still in the handshake. */
  readonly sockets: ReadonlySet<Socket>;
  /** Calls `take` with each connection that is ready to be read. */
  accept(take: (socket: Socket) => void): void;
}

export interface AdminListenerOptions {
  readonly tls: AdminTls | undefined;
  readonly handshakeMs: number;
  readonly maxConnections: number;
  readonly refused: Refused;
}

/** The admin port's listener, in plain text or with mutual TLS. */
export function adminListener({ tls, handshakeMs, maxConnections, refused }: AdminListenerOptions): AdminListener {
  let take = (socket: Socket): void => void socket.destroy();
  const accept = (socket: Socket) => {
    socket.on('error', () => socket.destroy());
    take(socket);
  };
  // gRPC's clients offer h2 alone, and all others ask for pages.
  const options = { handshakeTimeout: handshakeMs, ALPNProtocols: ['http/1.1', 'h2'] };
  const server = tls ? tls(options, { accept, refused }) : createServer(accept);
  server.maxConnections = maxConnections;
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  });
  return {
    server,
    sockets,
    accept(taken) {
      take = taken;
    },
  };
}
