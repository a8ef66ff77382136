import type { BlockList, Socket } from 'node:net';
import { type TlsSettings, WaitingPool, within } from '@isthmus/runtime';
import {
  type Accept,
  type CallerEdgeOptions,
  connectEdge,
  grpcServer,
  HANDSHAKES,
  type ListenAddress,
  type Listener,
  type ListenOptions,
  listen,
  type ProxyServiceOptions,
  proxyService,
} from '@isthmus/transport';
import type { CallerProtocol, PlaneEvents } from '@isthmus/tunnel';
import type { Door, Identities } from './identities.ts';

/** Initial window of a caller's tunnel, in bytes: what a tunnel holds if its destination does not read. It grows if the destination reads. */
const CALLER_WINDOW = 64 * 1024;

/** How long the header fields of a caller's request may be, in bytes: as long as the head of a CONNECT. */
const CALLER_FIELDS = 16 * 1024;

/** What a gRPC connection may do until its caller has proven a tenant. The window has room for a dial. */
const STRANGERS_CALLS = { streamWindow: 4 * 1024, maxStreams: 1 };

/**
 * Silent callers are pinged after at most this time, in milliseconds, even if the flag allows longer. Node does not always notice
 * that a TLS connection was reset while it wrote to it, and the caller's tunnel would stay open for the flag's hour.
 */
const LONGEST_KEEPALIVE = 60_000;

/** How long the last accepted callers may take in a drain for their handshake, dial and answer, in milliseconds. */
const ANSWER_GRACE = 1000;

/**
 * Connections at all ports whose callers have not proven their tenant, where tenants are configured: anyone may finish a handshake there. A
 * caller proves it with its first dial.
 */
const STRANGERS = HANDSHAKES;

/** One address where callers connect. */
export interface CallerPort extends Pick<ListenOptions, 'followTls' | 'chooseTls' | 'asksOnly'> {
  readonly address: ListenAddress;
  /** Default: those of all callers. */
  readonly events?: PlaneEvents;
  /** Unset on a unix socket, whose permissions decide. */
  readonly tls?: TlsSettings;
}

export interface CallersOptions extends CallerEdgeOptions, Pick<ProxyServiceOptions, 'awaitDial'> {
  /** Unset: both, told apart by the first bytes. */
  readonly mode?: CallerProtocol;
  /** Keepalive of callers' gRPC connections, in milliseconds. */
  readonly keepaliveTime: number;
  /** Load balancers in front of the ports, which use the PROXY protocol. */
  readonly proxyNetworks?: BlockList | undefined;
  /** Unset: nobody asks which door accepted a caller. */
  readonly identities?: Identities | undefined;
}

/** The door of a port that tenants share. */
const SHARED: Door = {};

/** Where callers connect, and what serves them there. */
export class Callers {
  readonly #options: CallersOptions;
  readonly #connect: ReturnType<typeof connectEdge>;
  /** Local callers notice that it leaves when their unix socket disappears, remote ones by a GOAWAY. */
  readonly #beside: ReturnType<typeof grpcServer>;
  readonly #afar: ReturnType<typeof grpcServer>;
  readonly #listeners = new Set<Listener>();
  readonly #strangersPool = new WaitingPool(STRANGERS.most);
  #hidden: Promise<void> | undefined;
  #stopped = false;

  constructor(options: CallersOptions) {
    this.#options = options;
    this.#connect = connectEdge(options);
    [this.#beside, this.#afar] = [grpcOf(options), grpcOf(options)];
  }

  get listeners(): readonly Listener[] {
    return [...this.#listeners];
  }

  /** @param door what it says about its callers; unset: nothing */
  async open(port: CallerPort, door?: Door): Promise<Listener> {
    const { proxyNetworks, events, identities } = this.#options;
    const local = 'path' in port.address;
    const admitted = (socket: Socket) => listener.strangers.leave(socket);
    const listener: Listener = await listen({
      events,
      ...port,
      ...this.#edges(local, door, admitted),
      ...(identities && { strangers: STRANGERS }),
      strangersPool: this.#strangersPool,
      proxyNetworks,
      name: 'callers',
    });
    this.#listeners.add(listener);
    // The gateway stopped while it opened.
    if (this.#stopped || (this.#hidden && local)) await this.close(listener);
    return listener;
  }

  #edges(
    local: boolean,
    door: Door | undefined,
    admitted: (socket: Socket) => void,
  ): { readonly others?: Accept; readonly http2?: Accept } {
    const { mode, identities } = this.#options;
    const grpc = local ? this.#beside : this.#afar;
    const entering = (accept: Accept): Accept =>
      identities
        ? (socket, first) => {
            identities.enter(socket, door ?? SHARED, () => admitted(socket));
            accept(socket, first);
          }
        : accept;
    const serves = (protocol: CallerProtocol) => mode === undefined || mode === protocol;
    return {
      ...(serves('http-connect') && { others: entering(this.#connect.accept) }),
      ...(serves('grpc') && { http2: entering((socket, first) => grpc.accept(socket, first)) }),
    };
  }

  /** Removes the unix sockets. Resolves when callers that connected before have dialled, or after a second. */
  hide(): Promise<void> {
    this.#hidden ??= stopped(this.listeners.filter(({ local }) => local));
    return this.#hidden;
  }

  /** Hides, and sends callers to other gateways. */
  async drain(): Promise<void> {
    this.#afar.drain();
    await this.hide();
    this.#beside.drain();
  }

  /** Rejects new callers. @param patient whether earlier ones get their answer before it resolves, within a second */
  async stop(patient: boolean): Promise<void> {
    this.#stopped = true;
    if (patient) return stopped(this.listeners);
    await Promise.all(this.listeners.map((listener) => listener.stop()));
  }

  /** Ends the gRPC connections. @param graceMs how long their callers may take, in milliseconds */
  async endCalls(graceMs: number): Promise<void> {
    await Promise.all([this.#beside.close(graceMs), this.#afar.close(graceMs)]);
  }

  /** Closes some of them, by default all, with their connections. */
  async close(...listeners: readonly Listener[]): Promise<void> {
    const closing = listeners.length > 0 ? listeners : this.listeners;
    for (const listener of closing) this.#listeners.delete(listener);
    await Promise.all(closing.map((listener) => listener.close()));
  }
}

function grpcOf({ keepaliveTime, ...edge }: CallersOptions) {
  return grpcServer({
    services: [proxyService(edge)],
    name: 'callers',
    events: edge.events,
    keepaliveMs: Math.min(keepaliveTime, LONGEST_KEEPALIVE),
    streamWindow: CALLER_WINDOW,
    maxFields: CALLER_FIELDS,
    ...(edge.identities && { strangers: STRANGERS_CALLS }),
  });
}

/** Stops listeners. Resolves when those who connected before have their answer. */
async function stopped(listeners: readonly Listener[]): Promise<void> {
  await Promise.all(listeners.map((listener) => listener.stop()));
  await within(Promise.all(listeners.map(({ idle }) => idle)), ANSWER_GRACE);
}
