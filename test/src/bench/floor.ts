// A caller's socket and a destination's, and nothing between them: the least that a dial costs in this language and on this runtime.
// Accepts callers on a unix socket or over mutual TLS, answers CONNECT, and connects to the destination or answers in its place. Or it relays
// each connection to its port: a chain of relays is the lowest cost of a plane with as many processes.
import { constants } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';

/** What the process does, as JSON in its first argument. */
export interface FloorSettings {
  /** A unix socket, or files for TLS; if unset, this process relays. */
  readonly listen?: { readonly path: string } | { readonly cert: string; readonly key: string; readonly ca: string };
  /** The destination; if unset, this process answers as one. */
  readonly to?: number;
}

const { listen, to } = JSON.parse(process.argv[2] ?? '') as FloorSettings;
const answer = Buffer.from('HTTP/1.1 200 OK\r\n\r\n');
const pong = Buffer.from('.');

function accept(caller: Socket): void {
  caller.on('error', () => caller.destroy());
  if (!listen) connectTo(caller, to);
  else
    caller.once('data', () => {
      if (to !== undefined) return connectTo(caller, to);
      caller.write(answer);
      caller.on('data', () => caller.write(pong));
      caller.once('end', () => caller.end());
    });
}

function connectTo(caller: Socket, port = 0): void {
  caller.pause();
  const destination = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true }, () => {
    if (listen) caller.write(answer);
    caller.pipe(destination).pipe(caller);
  });
  destination.on('error', () => caller.destroy());
  caller.once('close', () => destination.destroy());
}

function serverOf() {
  const options = { allowHalfOpen: true, noDelay: true };
  if (!listen || 'path' in listen) return createServer(options, accept);
  const [cert, key, ca] = [listen.cert, listen.key, listen.ca].map((file) => readFileSync(file));
  // Without tickets, as ours: they cost a fifth of a handshake, and no caller resumes.
  const tls = { cert, key, ca, requestCert: true, rejectUnauthorized: true, secureOptions: constants.SSL_OP_NO_TICKET };
  return createTlsServer({ ...options, ...tls }, accept);
}

const place = listen && 'path' in listen ? listen : { host: '127.0.0.1', port: 0 };
const server = serverOf().listen({ ...place, backlog: 4096 }, () => {
  const address = server.address();
  process.send?.(typeof address === 'object' ? address?.port : 0);
});
process.once('disconnect', () => process.exit(0));
