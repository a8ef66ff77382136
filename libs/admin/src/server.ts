import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer, isIPv6, type Socket } from 'node:net';
import type { TlsOptions, Server as TlsServer } from 'node:tls';
import { Admitted, beginsWith, bind, isLoopback, putBack, remoteOf, WaitingConnections } from '@isthmus/runtime';
import { type Refused, refuseBadRequests, send, takesTurns, urlOf } from '@isthmus/service';
import { inWords } from '@isthmus/tunnel';
import { faultOfVisitor, Visits, visitorOf } from './access/visitor.ts';
import type { AdminBackend } from './backend.ts';
import { type ConsoleOptions, isForConsole, serveConsole } from './console/console.ts';
import { FOREIGN, faultOfHost, isOwn } from './console/page.ts';
import { ADMIN } from './defaults.ts';
import { adminHandler, type TenantMetrics } from './handler.ts';
import { lazily } from './lazily.ts';

/** Makes a TLS server that has the admin port's certificates, renewed ones too, and lets in those whose certificate holds. */
export type AdminTls = (
  options: TlsOptions,
  handlers: { readonly accept: (socket: Socket) => void; readonly refused: Refused },
) => TlsServer;

export interface AdminOptions {
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** Of a unix socket, instead of the two. Its mode says who may connect. */
  readonly path?: string | undefined;
  readonly backend: AdminBackend;
  /** With TLS, both sides must present a certificate. Unset: plain text, and the RPC is served only on loopback. */
  readonly tls?: AdminTls | undefined;
  /** The console, for a program that has one. */
  readonly console?: ConsoleOptions | undefined;
  readonly metrics: TenantMetrics;
  /** `--enable-profiling` */
  readonly profiling: boolean;
  readonly warn: (message: string) => void;
  readonly refused?: Refused;
  /** How long a connection may take to show its protocol and to send the head of its first request, in milliseconds. Default 10 s. */
  readonly headTimeoutMs?: number;
}

export interface AdminServer extends AsyncDisposable {
  /** Means nothing for a unix socket. */
  readonly address: AddressInfo;
  /** Closes the listener and every connection, including those still in the handshake. */
  close(): Promise<void>;
}

/** The start of every HTTP/2 connection (RFC 9113 section 3.4). No HTTP/1.1 method starts like this. */
const HTTP2_PREFACE = Buffer.from('PRI');

/**
 * Serves the admin port: HTTP/1.1 and the admin RPC (gRPC) on one listener, which tells them apart by the first bytes. With TLS, both
 * require a client certificate. Without TLS there is no authentication, as in upstream. Questions are then answered only on loopback and on
 * unix sockets, while anyone who can connect may read metrics and profiles, as in upstream: any program, but no page of another site in
 * somebody's browser.
 */
export async function serveAdmin(options: AdminOptions): Promise<AdminServer> {
  const { path, backend, metrics, profiling, warn, tls, refused = () => {}, headTimeoutMs = ADMIN.headMs } = options;
  const { tenants, operated } = backend;
  let take = (socket: Socket): void => void socket.destroy();
  const listener = await listen(options, refused, headTimeoutMs, (socket) => take(socket));
  const { address } = listener;
  const reached = { tls: tls !== undefined, local: path !== undefined || isLoopback(address.address) };
  const trusted = reached.tls || reached.local;
  if (!trusted) warn(untrusted(address));
  // The libraries take 6 MB and 0.15 s (Node 20, with the rest of a program loaded).
  const rpc = lazily(() => import('./rpc.ts'));
  const ask = lazily(async () => new (await import('./ask.ts')).AskPage(backend));

  const pages = adminHandler({ metrics, profiling, tenants, operated });
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const refuse = (why: string) => send(response, { status: 403, body: `${why}\n` });
    // A browser opens no unix socket.
    const fault = path === undefined ? faultOfHost(request.headers, reached) : undefined;
    if (fault !== undefined) return refuse(fault);
    if (options.console && isForConsole(request))
      return serveConsole(request, response, options.console, reached, backend);
    const asks = urlOf(request)?.pathname === '/ask';
    const visitor = visitorOf(request.socket);
    if (!isOwn(request.headers, reached)) {
      if (asks) operated?.({ operator: visitor.operator, call: 'Ask', outcome: 'refused', text: FOREIGN });
      return refuse(FOREIGN);
    }
    if (!asks) return pages(request, response);
    if (!trusted) return refuse(UNTRUSTED);
    await (await ask()).serve(request, response, visitor);
  };
  const web = createHttpServer({ keepAliveTimeout: ADMIN.idleMs }, (request, response) => {
    if (!takesTurns(request, response, refused)) return;
    answer(request, response).catch((error) => {
      if (response.headersSent) response.destroy();
      else void send(response, { status: 500, body: `${inWords(error)}\n` });
    });
  });
  web.timeout = ADMIN.idleMs;
  refuseBadRequests(web, refused);

  /** What one connection of HTTP/2 costs the library has no bound, so that it is for the plane's own operators. */
  const serveHttp2 = (socket: Socket) => {
    const visitor = visitorOf(socket);
    const { operator, principal } = visitor;
    const fault = trusted ? (faultOfVisitor(visitor, tenants)?.message ?? (principal && OF_TENANT)) : UNTRUSTED;
    if (fault !== undefined) {
      refused(operator.remote, new Error(fault));
      socket.destroy();
      return;
    }
    rpc()
      .then(({ serveRpc }) => {
        if (!socket.destroyed) serveRpc(socket, backend);
      })
      // Only this client is affected.
      .catch((error) => {
        warn(`the admin RPC cannot serve a client: ${inWords(error)}`);
        socket.destroy();
      });
  };

  const visits = new Visits(tenants, refused);
  const heads = new Heads(headTimeoutMs, refused);
  web.on('request', ({ socket }) => heads.settle(socket));
  take = (socket) => {
    visits.enter(socket);
    heads.await(socket);
    beginsWith(socket, HTTP2_PREFACE, (isHttp2, first) => {
      putBack(socket, first);
      if (isHttp2) {
        heads.settle(socket);
        serveHttp2(socket);
      } else {
        web.emit('connection', socket);
        socket.resume();
      }
    });
  };

  let closing: Promise<void> | undefined;
  const close = async () => {
    closing ??= listener.close();
    await closing;
  };
  return { address, close, [Symbol.asyncDispose]: close };
}

const UNTRUSTED =
  'questions are answered over mutual TLS, or on a loopback address or unix socket: ' +
  'set --admin-server-cert, --admin-server-key and --admin-ca-cert, or --admin-bind-address=127.0.0.1';
const OF_TENANT = "gRPC is for the plane's operators: those of a tenant ask in JSON (POST /ask)";

/** Opens the listener, in plain text or with mutual TLS. @param take gets each connection that is ready to be read */
async function listen(
  { host, port, path, tls }: AdminOptions,
  refused: Refused,
  handshakeMs: number,
  take: (socket: Socket) => void,
): Promise<Pick<AdminServer, 'address' | 'close'>> {
  const names = {
    most: 'let fewer addresses reach the admin port',
    mostOfSource: 'find out what runs there, or block it from the admin port',
  };
  const [most, mostOfSource] = [ADMIN.handshakes, ADMIN.handshakesOfSource];
  const unproven = new WaitingConnections({ most, mostOfSource, names, deadlineMs: handshakeMs }, refused);
  const admitted = new Admitted({ most: ADMIN.connections, mostOfSource: ADMIN.connectionsOfSource }, refused);
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
  const close = async () => {
    const closed = bound.close();
    for (const socket of sockets) socket.destroy();
    unproven.close();
    await closed;
  };
  return { address: bound.address, close };
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
