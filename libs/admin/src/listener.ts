import { type AddressInfo, createServer, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import { Admitted, type AdmittedLimits, bind, WaitingConnections, type WaitingLimits } from '@isthmus/runtime';
import type { Refused } from '@isthmus/service';
import { visitorOf } from './access/visitor.ts';

/** Connections that are let in, at once: in all and from one source. The port is for operators and a few scrapers. */
const ADMITTED: AdmittedLimits = { most: 100, mostOfSource: 50 };

/**
 * Connections amid their handshakes. An operator's is done in a moment, so that only an attack meets these. They are apart from those
 * that are let in, so that who has no certificate takes no operator's place.
 */
const UNPROVEN: Omit<WaitingLimits, 'deadlineMs'> = {
  most: 200,
  mostOfSource: 50,
  names: {
    most: 'let fewer addresses reach the admin port',
    mostOfSource: 'find out what runs there, or block it from the admin port',
  },
};

/** Makes a TLS server that has the admin port's certificates, renewed ones too, and lets in those whose certificate holds. */
export type AdminTls = (
  options: TlsOptions,
  handlers: { readonly accept: (socket: Socket) => void; readonly refused: Refused },
) => TlsServer;

export interface AdminListener {
  readonly address: AddressInfo;
  /** Calls `take` with each connection that is ready to be read. */
  accept(take: (socket: Socket) => void): void;
  /** Closes the listener and all connections, including those still in the handshake. */
  close(): Promise<void>;
}

export interface AdminListenerOptions {
  readonly host: string;
  readonly port: number;
  /** Of a unix socket, instead of the two. */
  readonly path?: string | undefined;
  readonly tls: AdminTls | undefined;
  readonly handshakeMs: number;
  readonly refused: Refused;
}

/** Opens the admin port's listener, in plain text or with mutual TLS. */
export async function adminListener(options: AdminListenerOptions): Promise<AdminListener> {
  const { host, port, path, tls, handshakeMs, refused } = options;
  let take = (socket: Socket): void => void socket.destroy();
  const unproven = new WaitingConnections({ ...UNPROVEN, deadlineMs: handshakeMs }, refused);
  const admitted = new Admitted(ADMITTED, refused);
  const accept = (socket: Socket) => {
    unproven.leave(socket);
    socket.on('error', () => socket.destroy());
    if (admitted.enter(socket, visitorOf(socket).operator.tenant)) take(socket);
  };
  const server = tls ? tls({ handshakeTimeout: handshakeMs }, { accept, refused }) : createServer(accept);
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
  });
  const failed = (error: Error) => refused('', error);
  const at = path === undefined ? { host, port } : { path, deleteExisting: true };
  const bound = await bind(server, { at, limits: unproven, failed }).catch((cause: Error) => {
    throw new Error(`cannot listen on the admin address ${path ?? `${host}:${port}`}: ${cause.message}`, { cause });
  });
  return {
    address: bound.address,
    accept(taken) {
      take = taken;
    },
    async close() {
      const closed = bound.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
