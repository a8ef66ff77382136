import type { BlockList, Socket } from 'node:net';
import { faultOfSocketPath } from '@isthmus/flags';
import { type Tenancy, type TenantPort, TenantPorts } from '@isthmus/plane';
import { guarding, type TlsSettings, WaitingPool, within } from '@isthmus/runtime';
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
import { type CallerProtocol, NotAuthorised, type PlaneEvents } from '@isthmus/tunnel';
import { GATEWAY } from './defaults.ts';
import type { Identities, PortOwner } from './identities.ts';

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
  /** Unset: nobody asks which port accepted a caller. */
  readonly identities?: Identities | undefined;
}

/** Where callers connect, and what serves them there. */
export class Callers {
  readonly #options: CallersOptions;
  readonly #connect: ReturnType<typeof connectEdge>;
  /** Local callers notice that it leaves when their unix socket disappears, remote ones by a GOAWAY. */
  readonly #beside: ReturnType<typeof grpcServer>;
  readonly #afar: ReturnType<typeof grpcServer>;
  readonly #listeners = new Set<Listener>();
  /**
   * Connections at all ports whose callers have not proven their tenant, where tenants are configured: anyone may finish a handshake there. A
   * caller proves it with its first dial.
   */
  readonly #strangersPool = new WaitingPool(HANDSHAKES.most);
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

  /** @param owner what it says about its callers */
  async open(port: CallerPort, owner: PortOwner = {}): Promise<Listener> {
    const { proxyNetworks, events, identities } = this.#options;
    const local = 'path' in port.address;
    const admitted = (socket: Socket) => listener.strangers.leave(socket);
    const listener: Listener = await listen({
      events,
      ...port,
      ...this.#edges(local, owner, admitted),
      ...(identities && { strangers: HANDSHAKES }),
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
    owner: PortOwner,
    admitted: (socket: Socket) => void,
  ): { readonly others?: Accept; readonly http2?: Accept } {
    const { mode, identities } = this.#options;
    const grpc = local ? this.#beside : this.#afar;
    const entering = (accept: Accept): Accept =>
      identities
        ? (socket, first) => {
            identities.enter(socket, owner, () => admitted(socket));
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
    keepaliveMs: Math.min(keepaliveTime, GATEWAY.longestKeepaliveMs),
    streamWindow: GATEWAY.callerWindowBytes,
    maxFields: GATEWAY.callerFieldsBytes,
    ...(edge.identities && {
      strangers: { streamWindow: GATEWAY.unprovenWindowBytes, maxStreams: GATEWAY.unprovenStreams },
    }),
  });
}

/** Stops listeners. Resolves when those who connected before have their answer. */
async function stopped(listeners: readonly Listener[]): Promise<void> {
  await Promise.all(listeners.map((listener) => listener.stop()));
  await within(Promise.all(listeners.map(({ idle }) => idle)), GATEWAY.answerGraceMs);
}

/** What the tenants' own ports and unix sockets share. */
export interface OwnPorts {
  /** Address that the ports listen on. */
  readonly host: string;
  /** Shown by the ports of tenants without a certificate of their own. */
  readonly tls: TlsSettings;
  readonly deleteExisting: boolean;
}

export interface TenantCallersOptions {
  readonly tenancy: Tenancy;
  readonly ports: OwnPorts;
  readonly callers: Callers;
  readonly identities: Identities;
  readonly events: PlaneEvents;
}

/** Keeps the tenants' own ports and unix sockets as their files say. Resolves once each is open or has failed. */
export async function tenantCallers(options: TenantCallersOptions): Promise<TenantPorts<Listener>> {
  const { tenancy, callers, identities, events } = options;
  const ports = new TenantPorts<Listener>({
    tenancy,
    of: 'callers',
    open: (owner, portEvents) => callers.open({ ...portOf(owner, options), events: portEvents }, owner),
    async close(owner, listener) {
      const { rule, tenant, unixSocket, port } = owner;
      const what = unixSocket === undefined ? `port ${port}` : `unix socket ${unixSocket}`;
      await listener.stop();
      identities.endAll(owner, new NotAuthorised(`tenant ${tenant} has no ${what} any more`, { rule }));
      // The address is free for its next tenant. Handshakes that peers trickle would hold it until their deadline.
      guarding((error) => events.emit('fault', 'callers', what, error))(() => callers.close(listener))();
    },
    events,
  });
  await ports.look();
  return ports;
}

function portOf({ tenant, unixSocket, port = 0 }: TenantPort, { tenancy, ports }: TenantCallersOptions): CallerPort {
  const { host, deleteExisting } = ports;
  if (unixSocket !== undefined) {
    const fault = faultOfSocketPath(unixSocket);
    if (fault !== undefined) throw new Error(fault);
    return { address: { path: unixSocket, deleteExisting } };
  }
  const { tls } = ports;
  if (!tls.cert && !tenancy.tenants.get(tenant)?.file.server)
    throw new Error('there is no certificate to show: add server to the file, or set --server-cert');
  const followTls = tenancy.portTls(tenant, tls);
  return { address: { host, port }, tls, followTls, asksOnly: true, chooseTls: tenancy.chooseTls };
}
