import type { ConnectionOptions, TLSSocket } from 'node:tls';
import { type ClientTls, connectTls, secured } from '@isthmus/runtime';
import { inWords } from './handshake.ts';

/** A connection whose server has not proven its identity yet. */
export interface Handshake {
  readonly socket: TLSSocket;
  /** Resolves when it has. Rejects if it cannot, with its certificate and what is wrong with it, after destroying the socket. */
  readonly done: Promise<unknown>;
}

/** Connects, and verifies that the server's certificate is valid for a server and has one of these names: hosts, addresses or a role. */
export function secureConnect(options: ConnectionOptions, tls: ClientTls, names: readonly string[]): Handshake {
  const socket = connectTls(options, tls, names);
  const done = secured(socket).catch((error: Error) => {
    throw inWords(error);
  });
  return { socket, done };
}
