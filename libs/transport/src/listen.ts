import net, { type BlockList, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import {
  begins,
  bind,
  boundCaller,
  descriptors,
  putBack,
  RandomSet,
  remoteOf,
  type TlsSettings,
  WaitingConnections,
  type WaitingLimits,
  type WaitingPool,
} from '@isthmus/runtime';
import {
  type Caller,
  type CertificatePlace,
  type DialError,
  type Due,
  deadlines,
  type NotAuthorised,
  type PlaneEvents,
} from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { Pieces, type RequestHead, RequestRefused, requestIn } from './http1.ts';
import type { ProxyCredential } from './identity.ts';
import { SocketEnd, type SocketUser } from './socket-end.ts';
import { peerSubject } from './tls/admit.ts';
import { type ByName, takeByName } from './tls/client-hello.ts';
import { type ChooseTls, type OtherCertificate, tlsServer } from './tls/renewal.ts';

/** Handshakes in progress at one port. */
export const HANDSHAKES: WaitingLimits = {
  most: TRANSPORT.handshakes,
  mostOfSource: TRANSPORT.handshakesOfSource,
  deadlineMs: TRANSPORT.handshakeMs,
  names: {
    most: 'let fewer addresses reach this port',
    mostOfSource: 'find out what runs there, or block it from this port',
  },
};

/** The start of HTTP/2's connection preface (RFC 9113 section 3.4). No HTTP/1.1 method starts like this. */
const PREFACE = Buffer.from('PRI * HTTP/2.0');

export type ListenAddress =
  | { readonly path: string; readonly deleteExisting: boolean }
  | { readonly host: string; readonly port: number };

/** Takes a flowing socket with its first bytes. More data may arrive as soon as the function has returned. */
export type Accept = (end: SocketEnd, first: Buffer) => void;

export interface ListenOptions {
  readonly address: ListenAddress;
  /** Unset: no TLS. With `ca`, a valid client certificate is required, unless `asksOnly` is set. */
  readonly tls?: TlsSettings;
  /** What is shown instead of the certificate of `tls`, while there is one. */
  readonly instead?: OtherCertificate;
  /** Chooses the server's certificate by the server name that a peer sends (SNI). Undefined: that of `tls`. */
  readonly chooseTls?: ChooseTls;
  /** Peers may show a client certificate, which `others` and `http2` verify: see `shownCertificate`. */
  readonly asksOnly?: boolean;
  /** Takes connections whose ClientHello names another server, before TLS or anything else answers them. Undefined: none at the moment. */
  readonly byName?: (() => ByName | undefined) | undefined;
  /** A name that each client certificate must have (subjectAltName, DNS). */
  readonly role?: string | undefined;
  /** How long a peer may take for its TLS handshake, in milliseconds. Default 10 s. */
  readonly handshakeTimeout?: number;
  /** Takes connections that begin with HTTP/2's preface. Unset: they are refused. */
  readonly http2?: Accept;
  /** Takes all other connections. Unset: they are refused. */
  readonly others?: Accept;
  /**
   * Limits for peers that have not proven who they are. If set, the caller reports when a peer has, see `Listener.unproven`. Unset:
   * the TLS handshake is proof.
   */
  readonly unproven?: WaitingLimits;
  /** What it shares with other ports of the process: places for peers that have not proven who they are. */
  readonly unprovenPool?: WaitingPool | undefined;
  /** Load balancers, whose connections begin with a header of the PROXY protocol. */
  readonly proxyNetworks?: BlockList | undefined;
  readonly events: PlaneEvents;
  /** What listens, for errors: `callers`, `agents`. */
  readonly name: CertificatePlace;
}

export interface Listener {
  /** `host:port` with the actual port, or the path of the socket. */
  readonly address: string;
  readonly connections: Iterable<Socket>;
  /** Whether callers are on this machine: it listens on a unix socket. */
  readonly local: boolean;
  /** Why callers cannot find it although it listens: its socket file was deleted or replaced. */
  readonly lost: string | undefined;
  /** Peers that have not proven who they are. */
  readonly unproven: WaitingConnections;
  /** Goes on accepting them, and lets the next process take over a unix socket. */
  leave(): void;
  /** Stops accepting connections, after removing a unix socket's file. Open connections continue. */
  stop(): Promise<void>;
  /** After `stop`: resolves when the last connection has ended, including those in their TLS handshake. */
  readonly idle: Promise<void>;
  /** Also ends every connection. */
  close(): Promise<void>;
}

/** Listens for several protocols on one address and tells them apart by the first bytes of a connection. */
export async function listen(options: ListenOptions): Promise<Listener> {
  const { address, events, name } = options;
  const local = 'path' in address;
  const connections = new RandomSet<Socket>();
  const refuse = (remote: string, error: Error) => events.emit('refused', `${name} waiting`, remote, error);
  const unproven = new WaitingConnections(options.unproven ?? HANDSHAKES, refuse, options.unprovenPool);
  /** @returns whether it may stay */
  const enter = (socket: Socket): boolean => {
    connections.add(socket);
    descriptors.opened();
    if (descriptors.spent) {
      events.emit('refused', name, remoteOf(socket), new Error('too many open files'));
      socket.destroy();
      return false;
    }
    if (!local) socket.setNoDelay(true);
    else if (name === 'callers') boundCaller?.(socket);
    return true;
  };
  const left = (socket: Socket) => void connections.delete(socket);
  const accept = (socket: Socket) => {
    // Nobody waits at a unix socket: the file's permissions have decided.
    if (!local && options.unproven) unproven.greeted(socket);
    else if (!local) unproven.leave(socket);
    const end = new SocketEnd(socket, left);
    if (enter(socket)) new Undecided(end, options);
    else end.forget();
  };
  const accepted = (socket: Socket) => {
    // Only from here on: a peer that ends its half during the handshake has gone.
    socket.allowHalfOpen = true;
    accept(socket);
  };
  const refused = (remote: string, error: Error) => events.emit('refused', name, remote, error);
  const { tls: files, instead, chooseTls, asksOnly, role } = options;
  const { handshakeTimeout = TRANSPORT.firstBytesMs } = options;
  const rules = { handshakeTimeout, chooseTls, asksOnly, ...(!options.http2 && { ALPNProtocols: ['http/1.1'] }) };
  const server = files
    ? tlsServer({ where: name, files, instead, events }, rules, { accept: accepted, refused, role })
    : net.createServer({ allowHalfOpen: true }, accept);
  if (options.byName) {
    const taken = (socket: Socket, take: (socket: Socket) => void) => {
      unproven.leave(socket);
      // Before its end can have come: a TLS server's sockets end with their peers otherwise.
      socket.allowHalfOpen = true;
      socket.on('close', () => left(socket)).on('error', ignore);
      if (enter(socket)) take(socket);
    };
    takeByName(server, { choose: options.byName, taken, where: name, events });
  }
  const failed = (error: Error) => events.emit('refused', name, '', error);
  const bound = await bind(server, {
    at: address,
    limits: unproven,
    // Nobody proxies to a unix socket.
    proxyNetworks: local ? undefined : options.proxyNetworks,
    refused,
    failed,
  });
  return {
    idle: bound.idle,
    address: local ? address.path : shown(address.host, bound.address.port),
    connections,
    local,
    get lost() {
      return bound.lost;
    },
    unproven,
    leave: () => bound.leave(),
    stop: () => bound.stop(),
    async close() {
      const closed = bound.close();
      for (const socket of connections) socket.destroy();
      unproven.close();
      await closed;
    },
  };
}

function ignore(): void {}

/** Gives a connection to the protocol that its first bytes show. */
class Undecided implements SocketUser, Due {
  before: Due | undefined;
  behind: Due | undefined;
  readonly due = performance.now() + TRANSPORT.firstBytesMs;
  readonly #end: SocketEnd;
  readonly #options: ListenOptions;
  #seen: Buffer | undefined;

  constructor(end: SocketEnd, options: ListenOptions) {
    this.#end = end;
    this.#options = options;
    deadlines.enter(this);
    end.hear(this);
  }

  onData(chunk: Buffer): void {
    const seen = this.#seen ? Buffer.concat([this.#seen, chunk]) : chunk;
    const isHttp2 = begins(seen, PREFACE);
    this.#seen = seen;
    if (isHttp2 && seen.length < PREFACE.length) return;
    const { http2, others } = this.#options;
    deadlines.leave(this);
    try {
      const accept = isHttp2 ? http2 : others;
      if (!accept) throw new Error(`${isHttp2 ? 'HTTP/2' : 'HTTP/1.1'} is not served here`);
      accept(this.#end, seen);
    } catch (error) {
      this.#refuse(error as Error);
    }
  }

  /** A load balancer's health check connects and closes, which is no error. */
  onEnd(): void {
    this.#end.stream.destroy();
  }

  onClose(): void {
    deadlines.leave(this);
  }

  remind(): void {
    this.#refuse(new Error(`no request within ${TRANSPORT.firstBytesMs / 1000} s`));
  }

  #refuse(error: Error): void {
    const { events, name } = this.#options;
    const { stream: socket } = this.#end;
    events.emit('refused', name, remoteOf(socket), error);
    socket.destroy();
  }
}

/** For an edge that reads a connection from its beginning: the socket is paused until the edge reads it. */
export function fromTheStart(accept: (socket: Socket) => void): Accept {
  return (end, first) => {
    const socket = end.release();
    putBack(socket, first);
    accept(socket);
  };
}

/** The other side of a connection. */
export interface ConnectionPeer {
  readonly socket: Socket;
  /** `host:port`, or `uds`. */
  readonly remote: string;
  /** The subject of its certificate, if it showed one. */
  readonly subject: string | undefined;
  /**
   * Call when a request is refused for what it shows, or because it is malformed. After `TRANSPORT.challenges` of them in a short time the
   * connection accepts no more requests, and ends with the last that it has. Unset over HTTP/1.1, where a connection has one tunnel.
   */
  refused?(why: Error): void;
  /** Ends the connection with its dials and tunnels, as closed by the plane. Tells the other side why where the protocol can. */
  end(reason: Error): void;
}

export function peerOf(socket: Socket, end: ConnectionPeer['end']): ConnectionPeer {
  const subject = socket instanceof TLSSocket ? peerSubject(socket) : undefined;
  return { socket, remote: remoteOf(socket), subject, end };
}

/** Who dials on a connection. */
export interface CallerIdentity {
  readonly tenant: string;
  readonly caller: Omit<Caller, 'via'>;
}

/** Who calls, why it may not dial, or a limit of its tenant that leaves no room for its connection. */
export type Judged = CallerIdentity | NotAuthorised | DialError;

/** Says who a caller is. Called for each dial: one gRPC connection may carry many, and gives the same peer. */
export type IdentifyCaller = (peer: ConnectionPeer) => Judged;

/**
 * Says who a caller is by what it shows in `Proxy-Authorization`. Its connection ends with the credential. Rejects with NotAuthorised, after a
 * delay if the token was wrong, and with DialError for a limit.
 * @param signal aborts when the caller has gone
 */
export type IdentifyByToken = (
  peer: ConnectionPeer,
  shown: ProxyCredential,
  signal: AbortSignal,
) => Promise<CallerIdentity>;

/** Every peer that reaches the port may dial, for this tenant. Its name is the subject of its certificate, or its address. */
export function anyoneOf(tenant: string): IdentifyCaller {
  return ({ subject, remote }) => ({ tenant, caller: { identity: subject ?? remote, remote } });
}

/** Serves the requests of a port, of HTTP/1.1. Each connection has one. */
export interface RequestEdge {
  /** What it throws refuses the request. */
  readonly serve: (end: SocketEnd, head: RequestHead) => void;
  /** Takes a request that changes its protocol, instead. Returns false for any other. */
  readonly upgrade?: (end: SocketEnd, head: RequestHead) => boolean;
  /** Answers a request with what is wrong with it, and ends its connection. A RequestRefused has the status. */
  readonly refuse: (end: SocketEnd, error: Error) => void;
  /** Ends a connection for a defect of ours. */
  readonly fault: (end: SocketEnd, error: Error) => void;
}

/** Reads the request of each connection for an edge. ([Why not node:http](docs/adr/0002-one-http2-stream-per-tunnel.md)) */
export function requests(edge: RequestEdge): Accept {
  return (end, first) => {
    if (!settle(edge, end, first)) new UnfinishedRequest(end, edge, first);
  };
}

/** Serves a request whose head has come, or refuses what is none. @returns whether it did */
function settle(edge: RequestEdge, end: SocketEnd, bytes: Buffer, searched?: number): boolean {
  try {
    const head = requestIn(bytes, searched);
    if (!head) return false;
    if (head.method === 'CONNECT' || !edge.upgrade?.(end, head)) edge.serve(end, head);
  } catch (error) {
    refuse(edge, end, error as Error);
  }
  return true;
}

function refuse(edge: RequestEdge, end: SocketEnd, error: Error): void {
  end.forget();
  try {
    edge.refuse(end, error);
  } catch (defect) {
    edge.fault(end, defect as Error);
  }
}

/** Takes the connection of a request that changes its protocol. The bytes behind the head are still to be read. */
export function upgraded(end: SocketEnd, { rest }: RequestHead): Socket {
  const socket = end.release();
  putBack(socket, rest);
  return socket;
}

/** Heads longer than `headBytes` that are on their way. */
let longHeads = 0;

/** A request whose head has not come whole. Nearly every one comes in one piece: only others wait, with a deadline. */
class UnfinishedRequest implements SocketUser, Due {
  before: Due | undefined;
  behind: Due | undefined;
  readonly due = performance.now() + TRANSPORT.requestHeadMs;
  readonly #end: SocketEnd;
  readonly #edge: RequestEdge;
  readonly #pieces = new Pieces();
  /** Whether it holds more of a head than what anyone may have on the way. */
  #isLong = false;

  constructor(end: SocketEnd, edge: RequestEdge, first: Buffer) {
    this.#end = end;
    this.#edge = edge;
    this.#pieces.add(first);
    deadlines.enter(this);
    end.hear(this);
    this.#checkLength();
  }

  onData(chunk: Buffer): void {
    const { length } = this.#pieces;
    let settled = true;
    try {
      settled = settle(this.#edge, this.#end, this.#pieces.add(chunk), length);
    } finally {
      if (settled) this.onClose();
    }
    if (!settled) this.#checkLength();
  }

  onEnd(): void {
    this.#refuse(400, 'the connection ended in the middle of its request');
  }

  onClose(): void {
    deadlines.leave(this);
    if (this.#isLong) longHeads--;
    this.#isLong = false;
  }

  remind(): void {
    this.#refuse(408, 'no request in time');
  }

  #checkLength(): void {
    if (this.#isLong || this.#pieces.length <= TRANSPORT.headBytes) return;
    if (longHeads >= TRANSPORT.longHeads) {
      const why = `the request's head is longer than ${TRANSPORT.headBytes} bytes, and too many such heads are on their way: try again`;
      this.#refuse(503, why);
      return;
    }
    this.#isLong = true;
    longHeads++;
  }

  #refuse(status: number, why: string): void {
    this.onClose();
    refuse(this.#edge, this.#end, new RequestRefused(status, why));
  }
}

function shown(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host || '0.0.0.0'}:${port}`;
}
