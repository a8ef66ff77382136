import { constants, type ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { type PlaneEvents, SessionLost } from '@isthmus/tunnel';
import { http2Servers, setSettings } from './internals.ts';
import { keepalive } from './keepalive.ts';
import { type GrpcService, MAX_MESSAGE } from './service.ts';

const CONNECTION_WINDOW = 2 ** 31 - 1;

/**
 * Streams of one connection that may be reset in a window of time. Fewer than nghttp2's own guard takes (1,000 and 33 a
 * second), for that one stops reading and leaves the connection open without a word.
 */
const MAX_RESETS = 300;
const RESET_WINDOW_MS = 10_000;

/**
 * How long a connection that comes while the server drains waits for its GOAWAY, in milliseconds. Go's clients take it for a
 * reason to connect anew, at once and as often as it takes: behind a balancer they soon find another server, and before a
 * socket that has only this one they would otherwise spin.
 */
const TURNED_AWAY_AFTER = 100;

export interface GrpcServerOptions {
  readonly services: readonly GrpcService[];
  readonly events: PlaneEvents;
  /** Names the server in events: `grpc callers`, `grpc agents`. */
  readonly name: string;
  /** How often a connection is pinged, in milliseconds. */
  readonly keepaliveMs: number;
  /** What a peer may send ahead on one stream, in bytes. */
  readonly streamWindow: number;
}

export interface GrpcServer {
  readonly connections: number;
  /** Takes over an accepted connection whose first bytes are HTTP/2's. */
  accept(socket: Socket): void;
  /**
   * Asks every peer to go elsewhere (GOAWAY) and lets its streams finish. Whoever comes later is sent on before it opens a
   * stream, so that its own library tries again.
   */
  drain(): void;
  /**
   * Tells every peer to go away for good (GOAWAY), waits up to `graceMs` for their streams and then ends what is left.
   * A Go agent that sees a GOAWAY comes back at once, so this is for the way out only.
   */
  close(graceMs: number): Promise<void>;
}

/** Serves gRPC on connections that someone else accepts. */
export function grpcServer({ services, events, name, keepaliveMs, streamWindow }: GrpcServerOptions): GrpcServer {
  const server = new Server({
    'grpc.max_receive_message_length': MAX_MESSAGE,
    'grpc.max_send_message_length': -1,
    ...keepalive(keepaliveMs),
    'grpc.enable_channelz': 0,
  });
  for (const { definition, implementation } of services) server.addService(definition, implementation);
  setSettings(server, { initialWindowSize: streamWindow });
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const sessions = new Set<ServerHttp2Session>();
  let draining = false;
  for (const http2Server of http2Servers(server)) {
    http2Server.on('session', (session) => {
      sessions.add(session);
      session.once('close', () => sessions.delete(session));
      // The window of the whole connection has to exceed the sum of its streams', or one that stalls stops the rest.
      session.setLocalWindowSize(CONNECTION_WINDOW);
      if (draining) session.close();
    });
    const served = new WeakSet<ServerHttp2Session>();
    const resets = new WeakMap<ServerHttp2Session, ResetWindow>();
    http2Server.on('stream', (stream) => {
      const session = stream.session as ServerHttp2Session | undefined;
      if (!session) return;
      served.add(session);
      stream.once('close', () => {
        if (stream.rstCode === 0 || session.destroyed || !tooManyResets(resets, session)) return;
        events.emit('refused', name, peerOf(session), new Error(`more than ${MAX_RESETS} streams were reset in a row`));
        session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
      });
    });
    http2Server.on('sessionError', (error: Error, session: ServerHttp2Session) => {
      // Go's clients close with a GOAWAY that names their own stream, which nghttp2 takes for a protocol error. Where there
      // were streams, their ends say what there is to say.
      if (!served.has(session)) events.emit('refused', name, peerOf(session), error);
    });
  }
  return {
    get connections() {
      return sessions.size;
    },
    accept(socket) {
      // HTTP/2 knows no half-open connection; Node's session would outlive a peer that sent FIN without GOAWAY, as Go's do.
      socket.allowHalfOpen = false;
      if (!draining) injector.injectConnection(socket);
      else setTimeout(() => socket.destroyed || injector.injectConnection(socket), TURNED_AWAY_AFTER).unref();
    },
    drain() {
      draining = true;
      for (const session of sessions) session.close();
    },
    async close(graceMs) {
      await closeSessions(sessions, graceMs);
      server.forceShutdown();
    },
  };
}

interface ResetWindow {
  readonly since: number;
  count: number;
}

function tooManyResets(windows: WeakMap<ServerHttp2Session, ResetWindow>, session: ServerHttp2Session): boolean {
  const now = performance.now();
  let window = windows.get(session);
  if (!window || now - window.since > RESET_WINDOW_MS) {
    window = { since: now, count: 0 };
    windows.set(session, window);
  }
  return ++window.count > MAX_RESETS;
}

function peerOf({ socket }: ServerHttp2Session): string {
  return socket?.remoteAddress ? `${socket.remoteAddress}:${socket.remotePort}` : 'uds';
}

async function closeSessions(sessions: ReadonlySet<ServerHttp2Session>, graceMs: number): Promise<void> {
  const open = [...sessions];
  const closed = open.map((session) => new Promise<void>((resolve) => void session.once('close', resolve)));
  for (const session of open) session.close();
  const late = new SessionLost('server is shutting down');
  const timer = setTimeout(() => {
    for (const session of open) session.destroy(late);
  }, graceMs);
  await Promise.all(closed);
  clearTimeout(timer);
}
