import { createServer, type Server, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import { type Refused, remoteOf } from './bad-requests.ts';

/** Makes a TLS server that has the admin port's certificates, renewed ones too. */
export type AdminTls = (options: TlsOptions) => TlsServer;

export interface AdminListener {
  readonly server: Server;
  /** Every connection, also amid its handshake. */
  readonly sockets: ReadonlySet<Socket>;
  /** Takes connections that are ready to be read. */
  accept(take: (socket: Socket) => void): void;
}

export interface AdminListenerOptions {
  readonly tls: AdminTls | undefined;
  readonly handshakeMs: number;
  readonly maxConnections: number;
  readonly refused: Refused;
}

/** The admin port's listener, in plain text or with mutual TLS. */
export function adminListener(options: AdminListenerOptions): AdminListener {
  const server = options.tls ? mutualTlsServer(options.tls, options) : createServer();
  server.maxConnections = options.maxConnections;
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  });
  return {
    server,
    sockets,
    accept(take) {
      server.on(options.tls ? 'secureConnection' : 'connection', (socket: Socket) => {
        socket.on('error', () => socket.destroy());
        take(socket);
      });
    },
  };
}

function mutualTlsServer(create: AdminTls, { handshakeMs, refused }: AdminListenerOptions): TlsServer {
  const server = create({
    requestCert: true,
    rejectUnauthorized: true,
    handshakeTimeout: handshakeMs,
    // gRPC's clients offer h2 alone, and all others ask for pages.
    ALPNProtocols: ['http/1.1', 'h2'],
  });
  server.on('tlsClientError', (error, socket) => {
    refused(remoteOf(socket), error);
    // Node leaves one that took too long open.
    socket.destroy();
  });
  return server;
}
