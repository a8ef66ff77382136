import type { Http2Server, ServerHttp2Session, ServerHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';

/** Sent to clients where the RPC is not served. Printable ASCII, because it goes into a header unescaped. */
const REFUSAL =
  'the admin RPC works only on a loopback address or with mutual TLS: ' +
  'set --admin-server-cert, --admin-server-key and --admin-ca-cert, or --admin-bind-address=127.0.0.1';

/** https://grpc.io/docs/guides/status-codes: PERMISSION_DENIED. No client retries it. */
const PERMISSION_DENIED = '7';

/** How long a client may stay before its session is closed, in milliseconds. */
const SESSION_MS = 10_000;

/** Answers each call of a gRPC client with the reason for the refusal, without loading the RPC's own server. */
export class RpcRefusal {
  #server: Promise<Http2Server> | undefined;

  take(socket: Socket): void {
    this.#server ??= refusing();
    this.#server
      .then((server) => {
        if (!socket.destroyed) server.emit('connection', socket);
      })
      // Only this client is affected.
      .catch(() => socket.destroy());
  }

  /** The caller closes the connections. */
  async close(): Promise<void> {}
}

/** Loaded on first use, because Node's HTTP/2 takes 1 MB. */
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

/** Answers with headers only ("Trailers-Only" in gRPC's protocol). */
function refuse(stream: ServerHttp2Stream): void {
  stream.on('error', () => {});
  stream.on('close', () => stream.session?.close());
  const status = { 'grpc-status': PERMISSION_DENIED, 'grpc-message': REFUSAL };
  stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...status }, { endStream: true });
}
