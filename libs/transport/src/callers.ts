import type { BlockList, Socket } from 'node:net';
import { remoteOf, type TlsSettings, WaitingPool, within } from '@isthmus/runtime';
import type { Attach, CallerProtocol, Hold, PlaneEvents, Tunnel } from '@isthmus/tunnel';
import { connectEdge } from './connect.ts';
import { TRANSPORT } from './defaults.ts';
import { type ProxyServiceOptions, proxyService } from './grpc/callers.ts';
import { GrpcServer } from './grpc/server.ts';
import { HoldLinks } from './link/hold.ts';
import {
  type Accept,
  HANDSHAKES,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  listen,
  type RequestEdge,
  requests,
} from './listen.ts';
import type { SocketEnd } from './socket-end.ts';

/** What a port or unix socket says about its callers. Empty for one that tenants share. */
export interface PortOwner {
  /** The tenant whose own it is. */
  readonly tenant?: string;
  readonly port?: number;
  /** An absolute path. */
  readonly unixSocket?: string;
}

/** One address where callers connect. */
export interface CallerPort extends Pick<ListenOptions, 'instead' | 'chooseTls' | 'asksOnly'> {
  readonly address: ListenAddress;
  /** Default: those of all callers. */
  readonly events?: PlaneEvents;
  /** Unset on a unix socket, whose permissions decide. */
  readonly tls?: TlsSettings;
}

export interface CallersOptions extends ProxyServiceOptions {
  /** Passes on the attaches of `isthmus hold`, which may then connect where callers do. Unset: it may not. */
  readonly attach?: Attach;
  /** Called with each tunnel of `isthmus hold` that begins. */
  readonly held?: (tunnel: Tunnel) => void;
  /** Unset: both, told apart by the first bytes. */
  readonly mode?: CallerProtocol;
  /** Keepalive of callers' gRPC connections, in milliseconds. */
  readonly keepaliveTime: number;
  /** Load balancers in front of the ports, which use the PROXY protocol. */
  readonly proxyNetworks?: BlockList | undefined;
  /** Unset: nobody asks which port accepted a caller. */
  readonly identities?: { enter(socket: Socket, owner: PortOwner, proven: () => void): void } | undefined;
}

/** Where callers connect, and what serves them there. */
export class Callers {
  readonly #options: CallersOptions;
  /** Serves what is asked by HTTP/1.1. */
  readonly #http1: Accept;
  /** Local callers notice that it leaves when their unix socket disappears, remote ones by a GOAWAY. */
  readonly #local: GrpcServer;
  readonly #remote: GrpcServer;
  readonly #holds: HoldLinks | undefined;
  readonly #listeners = new Set<Listener>();
  /**
   * Connections at all ports whose callers have not proven their tenant, where tenants are configured: anyone may finish a handshake there. A
   * caller proves it with its first dial.
   */
  readonly #unprovenPool = new WaitingPool(HANDSHAKES.most);
  #hidden: Promise<void> | undefined;
  #stopped = false;

  constructor(options: CallersOptions) {
    this.#options = options;
    [this.#local, this.#remote] = [grpcOf(options), grpcOf(options)];
    const { attach, mode } = options;
    const holds = attach && new HoldLinks({ ...options, attach });
    this.#holds = holds;
    const edge = mode === 'grpc' ? unserved(options) : connectEdge(options);
    this.#http1 = requests({ ...edge, ...(holds && { upgrade: (end, head) => holds.serve(end, head) }) });
  }

  get listeners(): readonly Listener[] {
    return [...this.#listeners];
  }

  /** The processes of `isthmus hold` with links here. */
  async holds(): Promise<readonly Hold[]> {
    return this.#holds?.all() ?? [];
  }

  /** @param owner what it says about its callers */
  async open(port: CallerPort, owner: PortOwner = {}): Promise<Listener> {
    const { proxyNetworks, events, identities, mode } = this.#options;
    const local = 'path' in port.address;
    const grpc = local ? this.#local : this.#remote;
    const entering = (accept: Accept): Accept => {
      if (!identities) return accept;
      return (end, first) => {
        const { stream: socket } = end;
        identities.enter(socket, owner, () => listener.unproven.leave(socket));
        accept(end, first);
      };
    };
    const listener: Listener = await listen({
      events,
      ...port,
      others: entering(this.#http1),
      ...(mode !== 'http-connect' && { http2: entering((end, first) => grpc.accept(end.release(), first)) }),
      ...(identities && { unproven: HANDSHAKES }),
      unprovenPool: this.#unprovenPool,
      proxyNetworks,
      name: 'callers',
    });
    this.#listeners.add(listener);
    // The gateway stopped while it opened.
    if (this.#stopped || (this.#hidden && local)) await this.close(listener);
    return listener;
  }

  /** Goes on serving, and lets the next process take over the unix sockets. */
  leave(): void {
    for (const listener of this.listeners) listener.leave();
  }

  /** Removes the unix sockets. Resolves when callers that connected before have dialled, or after a second. */
  hide(): Promise<void> {
    this.#hidden ??= stopped(this.listeners.filter(({ local }) => local));
    return this.#hidden;
  }

  /** Hides, and sends callers to other gateways. */
  async drain(): Promise<void> {
    this.#remote.drain();
    const left = this.#holds?.leave();
    await this.hide();
    this.#local.drain();
    await left;
  }

  /** Rejects new callers. @param patient whether earlier ones get their answer before it resolves, within a second of their handshake */
  async stop(patient: boolean): Promise<void> {
    this.#stopped = true;
    if (patient) return stopped(this.listeners);
    await Promise.all(this.listeners.map((listener) => listener.stop()));
  }

  /** Ends the gRPC connections, and the links of `isthmus hold`. @param graceMs how long gRPC callers may take, in milliseconds */
  async endCalls(graceMs: number): Promise<void> {
    this.#holds?.close();
    await Promise.all([this.#local.close(graceMs), this.#remote.close(graceMs)]);
  }

  /** Closes some of them, by default all, with their connections. */
  async close(...listeners: readonly Listener[]): Promise<void> {
    const closing = listeners.length > 0 ? listeners : this.listeners;
    for (const listener of closing) this.#listeners.delete(listener);
    await Promise.all(closing.map((listener) => listener.close()));
  }
}

/** For ports where callers dial by gRPC alone. */
function unserved({ events }: CallersOptions): RequestEdge {
  const refuse = ({ stream }: SocketEnd, error: Error) => {
    events.emit('refused', 'callers', remoteOf(stream), error);
    stream.destroy();
  };
  const serve = () => {
    throw new Error('HTTP/1.1 is not served here');
  };
  return { serve, refuse, fault: refuse };
}

function grpcOf({ keepaliveTime, ...edge }: CallersOptions) {
  return new GrpcServer({
    service: proxyService(edge),
    name: 'callers',
    events: edge.events,
    keepaliveMs: Math.min(keepaliveTime, TRANSPORT.callerKeepaliveMs),
    streamWindow: TRANSPORT.callerWindowBytes,
    maxFields: TRANSPORT.callerFieldsBytes,
    ...(edge.identities && {
      unproven: { streamWindow: TRANSPORT.unprovenWindowBytes, maxStreams: TRANSPORT.unprovenStreams },
    }),
  });
}

/** Stops listeners. Resolves when those who connected before have their answer. On a busy machine, or behind others, a handshake takes long. */
async function stopped(listeners: readonly Listener[]): Promise<void> {
  await Promise.all(listeners.map((listener) => listener.stop()));
  const idle = Promise.all(listeners.map((listener) => listener.idle));
  const start = performance.now();
  for (let greets = true; greets; ) {
    greets = listeners.some(({ unproven }) => unproven.greets);
    if (await within(idle, TRANSPORT.callerAnswerMs)) return;
    if (performance.now() - start > TRANSPORT.callerHandshakeMs) return;
  }
}
