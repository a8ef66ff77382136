import { createPrivateKey, X509Certificate } from 'node:crypto';
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type SecureContextOptions, type Server as TlsServer } from 'node:tls';
import { type Refused, remoteOf } from './bad-requests.ts';

/** Certificates, read anew for every connection, so that a renewed file is used. */
export type AdminTls = () => SecureContextOptions;

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
  readonly warn: (message: string) => void;
  readonly refused: Refused;
}

/** The admin port's listener, in plain text or with mutual TLS. */
export function adminListener(options: AdminListenerOptions): AdminListener {
  const server = options.tls ? tlsServer(options.tls, options) : createServer();
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

function tlsServer(read: AdminTls, { handshakeMs, warn, refused }: AdminListenerOptions): TlsServer {
  const server = createTlsServer({
    ...read(),
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
  renewing(server, read, warn);
  return server;
}

/** Looks at the files before each handshake. What cannot be used, such as one of two that are being renewed, waits for the next. */
function renewing(server: TlsServer, read: AdminTls, warn: (message: string) => void): void {
  let inUse = textOf(read());
  let told = '';
  server.prependListener('connection', () => {
    try {
      const options = read();
      const text = textOf(options);
      if (text === inUse) return;
      checkPair(options);
      server.setSecureContext(options);
      inUse = text;
      told = '';
    } catch (error) {
      const message = `the admin port goes on with the certificates it had: ${(error as Error).message}`;
      if (message !== told) warn(message);
      told = message;
    }
  });
}

/** Deno takes any pair, with which every handshake fails. */
function checkPair({ cert, key }: SecureContextOptions): void {
  const leaf = new X509Certificate(cert as Buffer);
  if (!leaf.checkPrivateKey(createPrivateKey(key as Buffer))) throw new Error('its key is of another certificate');
}

function textOf(options: SecureContextOptions): string {
  return Object.values(options).map(String).join('\0');
}
