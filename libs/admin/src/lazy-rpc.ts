import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import { inWords } from '@isthmus/tunnel';
import { ADMIN } from './defaults.ts';

/** Serves HTTP/2 connections that the admin port has accepted. */
export interface RpcServer {
  accept(socket: Socket): void;
  /** Ends every call. */
  close(): void;
}

/** Loads an RPC server at the first connection. Most processes never see one, and the libraries take memory and time. */
export class LazyRpc {
  readonly #load: () => Promise<RpcServer>;
  readonly #warn: (message: string) => void;
  #server: Promise<RpcServer> | undefined;

  constructor(load: () => Promise<RpcServer>, warn: (message: string) => void) {
    this.#load = load;
    this.#warn = warn;
  }

  accept(socket: Socket): void {
    this.#server ??= this.#load();
    this.#server
      .then((server) => {
        if (!socket.destroyed) server.accept(socket);
      })
      // Only this client is affected.
      .catch((error) => {
        this.#warn(`the admin RPC cannot serve a client: ${inWords(error)}`);
        socket.destroy();
      });
  }

  /** Stops the server. The caller closes the connections. */
  async close(): Promise<void> {
    const server = await this.#server?.catch(() => undefined);
    server?.close();
  }
}

/** Sent to clients where the RPC is not served. Printable ASCII, because it goes into a header unescaped. */
const REFUSAL =
  'the admin RPC works only on a loopback address or with mutual TLS: ' +
  'set --admin-server-cert, --admin-server-key and --admin-ca-cert, or --admin-bind-address=127.0.0.1';

/** https://grpc.io/docs/guides/status-codes: PERMISSION_DENIED. No client retries it. */
const PERMISSION_DENIED = '7';

/** Answers each call of a gRPC client with the reason for the refusal. Does without the RPC's own server: Node's HTTP/2 alone takes 1 MB. */
export async function refuseRpc(): Promise<RpcServer> {
  const { createServer } = await import('node:http2');
  const server = createServer({ maxSessionMemory: 1, settings: { maxConcurrentStreams: 1 } });
  server.on('session', endSoon);
  server.on('stream', refuse);
  server.on('sessionError', () => {});
  return { accept: (socket) => void server.emit('connection', socket), close() {} };
}

function endSoon(session: ServerHttp2Session): void {
  const timer = setTimeout(() => session.destroy(), ADMIN.refusedSessionMs);
  session.on('close', () => clearTimeout(timer));
  session.on('error', () => session.destroy());
}

/** Answers with headers only ("Trailers-Only" in gRPC's protocol). */
function refuse(stream: ServerHttp2Stream): void {
  stream.on('error', () => {});
  stream.on('close', () => stream.session?.close());
  const status = { 'grpc-status': PERMISSION_DENIED, 'grpc-message': REFUSAL };
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...status }, { endStream: true });
}
