import type { Http2Server, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
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
  #server: Promise<Http2Server> | undefined;

  take(socket: Socket): void {
    this.#server ??= refusing();
    this.#server
      .then((server) => {
        if (!socket.destroyed) server.emit('connection', socket);
      })
      // Nobody but the client has lost anything by that.
      .catch(() => socket.destroy());
  }

  /** The connections are the caller's to end. */
  async close(): Promise<void> {}
}

/** Loaded when somebody asks: Node's HTTP/2 takes 1 MB. */
async function refusing(): Promise<Http2Server> {
  const { createServer } = await import('node:http2');
  const server = createServer({ maxSessionMemory: 1, settings: { maxConcurrentStreams: 1 } });
  server.on('session', endSoon);
  server.on('stream', refuse);
  server.on('sessionError', () => {});
  return server;
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
