import { createServer, type Server, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import { Admitted, type AdmittedLimits, guardServer, type StrangerLimits, Strangers } from '@isthmus/runtime';
import type { Refused } from '@isthmus/service';

/** Who comes through a TLS server, and who does not. */
export interface AdminDoors {
  readonly accept: (socket: Socket) => void;
  readonly refused: Refused;
}

/** Connections that are let in, at once: in all and from one source. The port is for operators and a few scrapers. */
const ADMITTED: AdmittedLimits = { most: 100, mostOfSource: 50 };

/**
 * Connections amid their handshakes. An operator's is done in a moment, so that only an attack meets these. They are apart from those
 * that are let in, so that who has no certificate takes no operator's place.
 */
const STRANGERS: Omit<StrangerLimits, 'deadlineMs'> = {
  most: 200,
  mostOfSource: 50,
  names: {
    most: 'let fewer addresses reach the admin port',
    mostOfSource: 'look what runs there, or keep it from the admin port',
  },
};

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
  readonly refused: Refused;
}

/** The admin port's listener, in plain text or with mutual TLS. */
export function adminListener({ tls, handshakeMs, refused }: AdminListenerOptions): AdminListener {
  let take = (socket: Socket): void => void socket.destroy();
  const strangers = new Strangers({ ...STRANGERS, deadlineMs: handshakeMs }, refused);
  const admitted = new Admitted(ADMITTED, refused);
  const accept = (socket: Socket) => {
    strangers.leave(socket);
    socket.on('error', () => socket.destroy());
    if (admitted.enter(socket)) take(socket);
  };
  // gRPC's clients offer h2 alone, and all others ask for pages.
  const options = { handshakeTimeout: handshakeMs, ALPNProtocols: ['http/1.1', 'h2'] };
  const server = tls ? tls(options, { accept, refused }) : createServer(accept);
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  });
  guardServer(server, strangers);
  return {
    server,
    sockets,
    accept(taken) {
      take = taken;
    },
  };
}
