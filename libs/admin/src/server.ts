import { createServer as createHttpServer, type RequestListener } from 'node:http';
import { type AddressInfo, isIPv6, type Socket } from 'node:net';
import { beginsWith, isLoopback, putBack, remoteOf } from '@isthmus/runtime';
import { type Refused, refuseBadRequests, send } from '@isthmus/service';
import { Visits } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { Console, type ConsoleOptions } from './console/console.ts';
import { FOREIGN, faultOfHost, isOwn } from './console/page.ts';
import { ADMIN } from './defaults.ts';
import { LazyRpc, refuseRpc } from './lazy-rpc.ts';
import { type AdminTls, adminListener } from './listener.ts';

export interface AdminOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Of a unix socket, instead of the two. Its mode says who may connect. */
  readonly path?: string | undefined;
  readonly backend: AdminBackend;
  /** With TLS, both sides must present a certificate. Unset: plain text, and the RPC is served only on loopback. */
  readonly tls?: AdminTls | undefined;
  /** What the RPC's health service reports. Default: always true, because it answers. */
  readonly ready?: () => boolean;
  /** The console, for a program that has one. */
  readonly console?: ConsoleOptions;
  /** Handles requests that are neither gRPC nor for the console. Upstream's admin port serves /metrics and /debug/pprof. */
  readonly http: RequestListener;
  readonly warn: (message: string) => void;
  readonly refused?: Refused;
  /** How long a connection may take to show its protocol and to send the head of its first request, in milliseconds. Default 10 s. */
  readonly headTimeoutMs?: number;
}

export interface AdminServer extends AsyncDisposable {
  /** Means nothing for a unix socket. */
  readonly address: AddressInfo;
  /** Closes the listener and every connection. */
  close(): Promise<void>;
}

/** The start of every HTTP/2 connection (RFC 9113 section 3.4). No HTTP/1.1 method starts like this. */
const HTTP2_PREFACE = Buffer.from('PRI');

/**
 * Serves the admin port: HTTP/1.1 and the admin RPC (gRPC) on one listener, which tells them apart by the first bytes. With TLS, both
 * require a client certificate. Without TLS there is no authentication, as in upstream. The RPC is then served only on loopback and on
 * unix sockets, while
 * anyone who can connect may read metrics and profiles, as in upstream: any program, but no page of another site in somebody's browser.
 */
export async function serveAdmin(options: AdminOptions): Promise<AdminServer> {
  const { host, port, path, backend, http, warn, tls, ready = () => true, refused = () => {} } = options;
  const { headTimeoutMs = ADMIN.headMs } = options;
  const listener = await adminListener({ host, port, path, tls, refused, handshakeMs: headTimeoutMs });
  const { address } = listener;
  const reached = { tls: tls !== undefined, local: path !== undefined || isLoopback(address.address) };
  const trusted = reached.tls || reached.local;
  if (!trusted) warn(untrusted(address));
  // The libraries take 6 MB and 0.15 s (Node 20, with the rest of a program loaded).
  const serveRpc = async () => (await import('./rpc.ts')).serveRpc(backend, ready);
  const rpc = new LazyRpc(trusted ? serveRpc : refuseRpc, warn);

  const page = options.console && new Console(options.console, reached, backend);
  const web = createHttpServer({ keepAliveTimeout: ADMIN.idleMs }, (request, response) => {
    // A browser opens no unix socket.
    const asked = path === undefined ? faultOfHost(request.headers, reached) : undefined;
    if (asked !== undefined) return void send(response, { status: 403, body: `${asked}\n` });
    if (page?.accept(request, response)) return;
    if (!isOwn(request.headers, reached)) return void send(response, { status: 403, body: `${FOREIGN}\n` });
    http(request, response);
  });
  web.timeout = ADMIN.idleMs;
  refuseBadRequests(web, refused);

  const visits = new Visits(backend.tenants, refused);
  const heads = new Heads(headTimeoutMs, refused);
  web.on('request', ({ socket }) => heads.settle(socket));
  listener.accept((socket) => {
    visits.enter(socket);
    heads.await(socket);
    beginsWith(socket, HTTP2_PREFACE, (speaksHttp2, first) => {
      putBack(socket, first);
      if (speaksHttp2) {
        heads.settle(socket);
        rpc.accept(socket);
      } else {
        web.emit('connection', socket);
        socket.resume();
      }
    });
  });

  let closing: Promise<unknown> | undefined;
  const close = async () => {
    closing ??= Promise.all([listener.close(), rpc.close()]);
    await closing;
  };
  return { address, close, [Symbol.asyncDispose]: close };
}

function untrusted({ address, port }: AddressInfo): string {
  const shown = isIPv6(address) ? `[${address}]` : address;
  return (
    `the admin port listens on ${shown}:${port} without mutual TLS: anyone who can reach it can read metrics, and the admin RPC is ` +
    'rejected. Set --admin-server-cert, --admin-server-key and --admin-ca-cert, or use a loopback address'
  );
}

/** Connections that have sent no request yet. The HTTP server does not listen itself, so it enforces no deadline for request heads. */
class Heads {
  readonly #timers = new Map<Socket, NodeJS.Timeout>();
  readonly #ms: number;
  readonly #refused: Refused;

  constructor(ms: number, refused: Refused) {
    this.#ms = ms;
    this.#refused = refused;
  }

  await(socket: Socket): void {
    const late = () => {
      this.#refused(remoteOf(socket), new Error(`no request within ${this.#ms / 1000} s`));
      socket.destroy();
    };
    this.#timers.set(socket, setTimeout(late, this.#ms));
    socket.on('close', () => this.settle(socket));
  }

  settle(socket: Socket): void {
    clearTimeout(this.#timers.get(socket));
    this.#timers.delete(socket);
  }
}
