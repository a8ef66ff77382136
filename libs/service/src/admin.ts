import { once } from 'node:events';
import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import type { AdminBackend } from './admin-backend.ts';
import { RpcForward } from './admin-forward.ts';
import { type Refused, refuseBadRequests, remoteOf } from './bad-requests.ts';
import { guardListener } from './guard-listener.ts';
import { isLoopback } from './loopback.ts';

export interface AdminOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  readonly backend: AdminBackend;
  /** What the RPC's health service says. Default: always true, since it answers. */
  readonly ready?: () => boolean;
  /** Answers what is not gRPC: upstream's admin port serves /metrics and /debug/pprof. */
  readonly http: RequestListener;
  readonly warn: (message: string) => void;
  readonly refused?: Refused;
  /** How long a connection may take to show what it speaks, and to send its first request's head, in milliseconds. Default 10 s. */
  readonly headTimeoutMs?: number;
}

export interface AdminServer extends AsyncDisposable {
  readonly address: AddressInfo;
  /** Ends the listener and every connection. */
  close(): Promise<void>;
}

const HEAD_TIMEOUT_MS = 10_000;
/** Scrapers keep connections open between scrapes. */
const IDLE_TIMEOUT_MS = 65_000;
/** Connections at once: the port is for operators and one scraper. */
const MAX_CONNECTIONS = 100;

/** What an HTTP/2 connection begins with (RFC 9113 section 3.4) and no HTTP/1.1 method does. */
const HTTP2_PREFACE = Buffer.from('PRI');

/**
 * Serves the admin port: HTTP/1.1 and the admin RPC (gRPC over cleartext HTTP/2) on one listener, told apart by the first
 * bytes. It has no authentication, as upstream's has none, so an address other than loopback is worth a warning.
 */
export async function serveAdmin(options: AdminOptions): Promise<AdminServer> {
  const { host, port, backend, http, warn, ready = () => true, refused = () => {} } = options;
  const { headTimeoutMs = HEAD_TIMEOUT_MS } = options;
  const rpc = new RpcForward(backend, { ready, warn });
  const web = createHttpServer({ keepAliveTimeout: IDLE_TIMEOUT_MS }, http);
  web.timeout = IDLE_TIMEOUT_MS;
  refuseBadRequests(web, refused);

  /** Connections without a request yet. The server does not listen itself, so it sets heads no deadline. */
  const heads = new Map<Socket, NodeJS.Timeout>();
  const settle = (socket: Socket) => {
    clearTimeout(heads.get(socket));
    heads.delete(socket);
  };
  web.on('request', ({ socket }) => settle(socket));
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    const late = () => {
      refused(remoteOf(socket), new Error(`no request within ${headTimeoutMs / 1000} s`));
      socket.destroy();
    };
    sockets.add(socket);
    heads.set(socket, setTimeout(late, headTimeoutMs));
    socket.on('close', () => {
      sockets.delete(socket);
      settle(socket);
    });
    socket.on('error', () => socket.destroy());
    tellApart(socket, (speaksHttp2) => {
      if (!speaksHttp2) web.emit('connection', socket);
      else {
        settle(socket);
        rpc.take(socket);
      }
    });
  });
  listener.maxConnections = MAX_CONNECTIONS;

  const address = await listen(listener, host, port);
  if (!isLoopback(address.address)) {
    warn(`the admin port listens on ${address.address}:${address.port} without authentication: use a loopback address`);
  }
  const unguard = guardListener(listener, address, refused);
  const close = async () => {
    unguard();
    const closed = once(listener, 'close');
    listener.close();
    for (const socket of sockets) socket.destroy();
    await Promise.all([closed, rpc.close()]);
  };
  let closing: Promise<void> | undefined;
  const closeOnce = () => {
    closing ??= close();
    return closing;
  };
  return { address, close: closeOnce, [Symbol.asyncDispose]: closeOnce };
}

/** Reads until the first bytes say whether HTTP/2 follows, and puts them back. */
function tellApart(socket: Socket, decided: (speaksHttp2: boolean) => void): void {
  let head = Buffer.alloc(0);
  const onReadable = () => {
    const chunk: Buffer | null = socket.read();
    if (chunk === null) return;
    head = Buffer.concat([head, chunk]);
    const seen = head.subarray(0, HTTP2_PREFACE.length);
    const matches = HTTP2_PREFACE.subarray(0, seen.length).equals(seen);
    if (matches && seen.length < HTTP2_PREFACE.length) return;
    socket.off('readable', onReadable);
    socket.unshift(head);
    decided(matches);
  };
  socket.on('readable', onReadable);
}

async function listen(listener: Server, host: string, port: number): Promise<AddressInfo> {
  // An empty host means every address, as in Go.
  listener.listen(host === '' ? { port } : { host, port });
  try {
    await once(listener, 'listening');
  } catch (cause) {
    const detail = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`cannot listen on the admin address ${host}:${port}: ${detail}`, { cause });
  }
  return listener.address() as AddressInfo;
}
