import { createServer, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';

/** What those are told who connect where the RPC is not served: printable ASCII, since it goes into a header as it is. */
const REFUSAL =
  'the admin RPC is served on a loopback address, or with mutual TLS: ' +
  'set --admin-server-cert, --admin-server-key and --admin-ca-cert, or --admin-bind-address=127.0.0.1';

/** https://grpc.io/docs/guides/status-codes: PERMISSION_DENIED, which no client tries again. */
const PERMISSION_DENIED = '7';

/** A client that has not gone after so long is ended, in milliseconds. */
const SESSION_MS = 10_000;

/** Answers each call of a gRPC client with why it is refused, without what the RPC's own server takes. */
export class RpcRefusal {
  readonly #server = createServer({ maxSessionMemory: 1, settings: { maxConcurrentStreams: 1 } });

  constructor() {
    this.#server.on('session', endSoon);
    this.#server.on('stream', refuse);
    this.#server.on('sessionError', () => {});
  }

  take(socket: Socket): void {
    this.#server.emit('connection', socket);
  }

  /** The connections are the caller's to end. */
  async close(): Promise<void> {}
}

function endSoon(session: ServerHttp2Session): void {
  const timer = setTimeout(() => session.destroy(), SESSION_MS);
  session.on('close', () => clearTimeout(timer));
  session.on('error', () => session.destroy());
}

/** An answer of headers alone ("Trailers-Only" in gRPC's protocol). */
function refuse(stream: ServerHttp2Stream): void {
  stream.on('error', () => {});
  stream.on('close', () => stream.session?.close());
  const status = { 'grpc-status': PERMISSION_DENIED, 'grpc-message': REFUSAL };
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...status }, { endStream: true });
}
