import { createServer, type Server, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import { guardServer, remoteOf, type StrangerLimits, Strangers, sourceOf } from '@isthmus/runtime';
import type { Refused } from '@isthmus/service';

/** Who comes through a TLS server, and who does not. */
export interface AdminDoors {
  readonly accept: (socket: Socket) => void;
  readonly refused: Refused;
}

/** Connections that are let in, at once: in all and from one source. The port is for operators and a few scrapers. */
const MAX_CONNECTIONS = 100;
const MAX_OF_SOURCE = 50;

/**
 * Connections amid their handshakes. An operator's is done in a moment, so that only an attack meets these. They are apart from those
 * that are let in, so that who has no certificate takes no operator's place.
 */
const STRANGERS: Omit<StrangerLimits, 'deadlineMs'> = {
  ...{ most: 200, mostOfSource: 50 },
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
  const admitted = new Admitted();
  const accept = (socket: Socket) => {
    strangers.leave(socket);
    socket.on('error', () => socket.destroy());
    const full = admitted.add(socket);
    if (full === undefined) return take(socket);
    refused(remoteOf(socket), full);
    socket.destroy();
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

/** The connections that were let in, by source. */
class Admitted {
  readonly #sources = new Map<string, number>();
  #size = 0;

  /** @returns why it has no place, if so */
  add(socket: Socket): Error | undefined {
    // Of one that is gone already, no 'close' may come.
    if (socket.destroyed) return undefined;
    const source = sourceOf(socket.remoteAddress ?? '');
    const own = this.#sources.get(source) ?? 0;
    if (own >= MAX_OF_SOURCE) return new Error(`${own} connections from ${source} are open: close some of them`);
    if (this.#size >= MAX_CONNECTIONS) return new Error(`${this.#size} connections are open: close some of them`);
    this.#count(source, 1);
    socket.once('close', () => this.#count(source, -1));
    return undefined;
  }

  #count(source: string, change: number): void {
    this.#size += change;
    const own = (this.#sources.get(source) ?? 0) + change;
    if (own > 0) this.#sources.set(source, own);
    else this.#sources.delete(source);
  }
}
