import type { Socket } from 'node:net';
import {
  descriptors,
  getOrPut,
  guarding,
  LONGEST_TIMER,
  memory,
  onceClosed,
  randomHex,
  remoteOf,
  systemClock,
} from '@isthmus/runtime';
import {
  asDialError,
  ByteMeter,
  type Destination,
  DIRECT,
  DialAbort,
  DialError,
  type DialRequest,
  type Established,
  inTurns,
  PlaneEnded,
  type PlaneEvents,
  parseDestination,
  TokenBucket,
  type Tunnel,
} from '@isthmus/tunnel';
import type { TenantLimits } from '@isthmus/tunnel/limits';
import { TRANSPORT } from '../defaults.ts';
import { PendingDial, serve, type Waiter } from '../dials.ts';
import { connectError } from '../endpoint.ts';
import { resetSocket, SocketEnd } from '../socket-end.ts';
import type { ByName, NamedHello } from '../tls/client-hello.ts';
import { ApiServerAddresses, type ApiServerProhibited, type Reached } from './addresses.ts';
import { HelloEnd } from './hello-end.ts';
import { localOf, proxyHeader } from './proxy-header.ts';

/** The API server of a tenant. */
export interface ApiServer {
  readonly tenant: string;
  /** `host:port` of each. */
  readonly addresses: readonly string[];
  /** Whether each connection begins with a header of the PROXY protocol. */
  readonly proxyProtocol: boolean;
  /** Whether an object names the addresses, and no file or flag of the plane's operators. */
  readonly ofObject?: boolean;
}

export interface ApiServersOptions {
  /** Empty in a gateway. */
  readonly hubId: string;
  /** Whether there are any. */
  readonly any: () => boolean;
  /** That of a server name, in any case, with a dot at its end or without. */
  readonly find: (serverName: string) => ApiServer | undefined;
  /** That of a tenant, for clients that come through one of its agents. */
  readonly ofTenant: (tenant: string) => ApiServer | undefined;
  /** A tenant's limits as they are now. Unset: there are none. */
  readonly limits?: ((tenant: string) => TenantLimits) | undefined;
  readonly prohibited: ApiServerProhibited;
  readonly events: PlaneEvents;
}

/** What a tenant's clients use of this process. */
class Use {
  open = 0;
  readonly rate = new TokenBucket(systemClock.now);
  readonly meter: ByteMeter | undefined;

  constructor(tenant: string, limits: ApiServersOptions['limits']) {
    this.meter = limits && new ByteMeter(tenant, () => limits(tenant));
  }
}

/** A client's connection until it has reached its API server. */
interface Client {
  readonly tenant: string;
  readonly server: ApiServer;
  readonly dial: ClientDial;
  /** How long it may take, in milliseconds. */
  readonly timeoutMs: number;
}

/** The dial of a client. Its destination is the address that it goes to, or was meant to. */
type ClientDial = { -readonly [Key in 'destination']: DialRequest[Key] } & Omit<DialRequest, 'destination'>;

/** The dial of a client that comes by itself. */
interface OwnDial extends DialRequest {
  destination: Destination;
  readonly signal: DialAbort;
}

/** Where a connection went, once it is there. */
interface Passed {
  to: Reached | undefined;
}

/**
 * Passes clients' connections on to their tenants' API servers, byte for byte: TLS is between the two, and neither is ended from here. What nobody
 * takes is reset, as a client sees it of a server that is down.
 */
export class ApiServers {
  readonly addresses: ApiServerAddresses;
  readonly #options: ApiServersOptions;
  readonly #uses = new Map<string, Use>();
  /** The addresses of connections, by the randoms of their hellos: one that comes back has the same. */
  readonly #hellos = new Map<string, Passed>();
  /** What ends each connection, and the tenant. */
  readonly #ends = new Map<(reason: Error) => void, string>();
  readonly #reach: (client: Client) => Promise<Reached>;

  constructor(options: ApiServersOptions) {
    this.#options = options;
    this.addresses = new ApiServerAddresses(options);
    this.#reach = inTurns((client: Client) => this.#try(client));
  }

  /** For `ListenOptions.byName`. @param tenant the only one whose API server is reached there. Unset: each */
  byName(tenant?: string): () => ByName | undefined {
    const byName: ByName = (hello) => {
      const server = this.#options.find(hello.serverName);
      const isReached = server && (tenant === undefined || server.tenant === tenant);
      return isReached ? (socket) => this.#take(socket, hello, server) : undefined;
    };
    return () => (this.#options.any() ? byName : undefined);
  }

  /** Connections of a tenant: those that have yet to reach its API server, and those that a hub only passes on, included. */
  open(tenant: string): number {
    return this.#uses.get(tenant)?.open ?? 0;
  }

  /** Counts a client while this process connects it, or has another do so. @throws DialError at a limit of its tenant */
  async enter<Request extends DialRequest>(
    request: Request,
    dial: (request: Request) => Promise<Established>,
  ): Promise<Established> {
    const { tenant } = request;
    const use = this.#useOf(tenant);
    const refusal = this.#limited(use, tenant);
    if (refusal) throw this.#failed(request, refusal);
    use.open++;
    try {
      return await dial(request);
    } finally {
      use.open--;
    }
  }

  /** Counts what this hub only passes on. */
  passes({ dial: { tenant }, done }: Tunnel): void {
    const use = this.#useOf(tenant);
    use.open++;
    void done.then(() => use.open--);
  }

  /** Connects a client that comes through an agent of a tenant to the tenant's API server, whatever its destination says. */
  readonly connect = (request: DialRequest, timeoutMs: number = TRANSPORT.apiServerConnectMs): Promise<Established> => {
    const { tenant } = request;
    const server = this.#options.ofTenant(tenant);
    const none = `tenant ${tenant} has no API server here: its file names none (apiServer)`;
    if (!server) return Promise.reject(this.#failed(request, new DialError('http_request_denied', none)));
    return this.#connectTo({ tenant, server, dial: request, timeoutMs });
  };

  /** Cuts a tunnel when the process stops, or its tenant has no API server any more. */
  readonly runs = (tunnel: Tunnel): void => {
    const end = (reason: Error) => tunnel.abort(reason);
    this.#ends.set(end, tunnel.dial.tenant);
    void tunnel.done.then(() => this.#ends.delete(end));
  };

  /**
   * Forgets what is not in use, and cuts what no file allows any more.
   * @param own all in force that the plane's operators name; the others are those that objects name
   */
  follow(own: Iterable<string>, ofObjects?: Iterable<string>): void {
    this.addresses.follow(own, ofObjects);
    for (const [tenant, { open }] of this.#uses) if (open === 0) this.#uses.delete(tenant);
    for (const [end, tenant] of [...this.#ends]) {
      if (!this.#options.ofTenant(tenant))
        end(new PlaneEnded(`tenant ${tenant} has no API server here any more`, { by: 'policy' }));
    }
  }

  close(): void {
    this.addresses.close();
    const reason = new PlaneEnded('the process stops');
    for (const end of [...this.#ends.keys()]) end(reason);
  }

  /** Takes a client that comes by itself. */
  #take(socket: Socket, hello: NamedHello, server: ApiServer): void {
    const { events } = this.#options;
    const { tenant } = server;
    const dial = dialOf(socket, hello, server);
    const passed: Passed = { to: undefined };
    const before = this.#hellos.get(hello.random);
    if (!before) this.#hellos.set(hello.random, passed);
    const end = (reason: Error) => dial.signal.abort(reason);
    this.#ends.set(end, tenant);
    onceClosed(socket, () => {
      if (!before) this.#hellos.delete(hello.random);
      dial.signal.abort();
    });
    const reset = () => {
      this.#ends.delete(end);
      resetSocket(socket);
    };
    const waiter: Waiter = {
      accept: () => new SocketEnd(socket),
      begun: (tunnel) => {
        this.#ends.delete(end);
        this.runs(tunnel);
        socket.resume();
      },
      refuse: reset,
      unanswered: reset,
      fault(error) {
        reset();
        events.emit('fault', 'api-server', remoteOf(socket), error);
      },
    };
    const timeoutMs = TRANSPORT.apiServerConnectMs;
    const ask = async () => {
      if (before) throw this.#failed(dial, this.#sameHello(before, hello.serverName));
      return this.enter(dial, () => this.#connectTo({ tenant, server, dial, timeoutMs }, passed));
    };
    void serve(dial, ask, waiter, { role: 'api-server', events, halfClosedMs: LONGEST_TIMER });
  }

  /** @param passed of a client whose hello is known. Unset: it comes through an agent */
  #connectTo(client: Client, passed?: Passed): Promise<Established> {
    const { tenant, server, dial } = client;
    const { hubId } = this.#options;
    const start = performance.now();
    dial.destination = parseDestination(server.addresses[0] ?? '');
    const use = this.#useOf(tenant);
    const connected = (reached: Reached): Established => {
      const { socket, address } = reached;
      use.open++;
      this.addresses.count(reached, 1);
      onceClosed(socket, () => {
        use.open--;
        this.addresses.count(reached, -1);
      });
      dial.destination = parseDestination(address);
      if (server.proxyProtocol) socket.write(proxyHeader(dial.caller ?? {}));
      const before = socket.bytesWritten;
      const hangsUp = () => {
        const isAsked = socket.bytesWritten > before && !socket.writableEnded;
        if (isAsked && socket.bytesRead === 0) this.addresses.hangsUp(reached);
      };
      socket.once('end', hangsUp).once('error', hangsUp);
      const { meter } = use;
      const names = { agentId: DIRECT, sessionId: '', hubId, timing: {} };
      if (passed) passed.to = reached;
      const end = passed ? new SocketEnd(socket) : this.#endOf(dial, reached);
      return { end, ...names, ...(meter && { meter }) };
    };
    const failed = (error: unknown): never => {
      throw this.#failed(dial, error, start);
    };
    return this.#reach(client).then(connected, failed);
  }

  #useOf(tenant: string): Use {
    return getOrPut(this.#uses, tenant, () => new Use(tenant, this.#options.limits));
  }

  #failed(dial: DialRequest, thrown: unknown, start: number = performance.now()): DialError {
    const error = asDialError(thrown);
    if (!dial.signal.aborted) this.#options.events.emit('api-server:failure', dial, error, performance.now() - start);
    return error;
  }

  #limited(use: Use, tenant: string): DialError | undefined {
    // What comes through an agent is no socket of a listener, which would have looked. Another hub may have enough.
    const lacks = (descriptors.scarce && 'too many open files') || (memory.scarce && 'too little memory');
    if (lacks)
      return new DialError('connection_limit_reached', `hub ${this.#options.hubId}: ${lacks}`, { retryable: true });
    const limits = this.#options.limits?.(tenant);
    if (!limits) return undefined;
    const { apiServerConnections: most, apiServerConnectionsPerSecond: perSecond } = limits;
    const reached = (limit: string, value: number) =>
      new DialError('connection_limit_reached', `tenant ${tenant} has reached its limit ${limit} of ${value}`);
    if (use.open >= most) return reached('apiServerConnections', most);
    if (use.meter && use.meter.queued >= limits.bytesQueued) return reached('bytesQueued', limits.bytesQueued);
    if (use.rate.take(1, { perSecond, atOnce: 2 * perSecond })) return undefined;
    return reached('apiServerConnectionsPerSecond', perSecond);
  }

  /** The end at the API server of a client that comes through an agent: at that address, an agent may listen. */
  #endOf(dial: ClientDial, reached: Reached): SocketEnd {
    const { socket } = reached;
    return new HelloEnd(socket, 'to', ({ random }) => {
      const before = this.#hellos.get(random);
      if (before) {
        this.#failed(dial, this.#sameHello(before, `tenant ${dial.tenant}`));
        resetSocket(socket);
        return;
      }
      this.#hellos.set(random, { to: reached });
      onceClosed(socket, () => this.#hellos.delete(random));
    });
  }

  /** An API server that has answered does not lead back: then somebody else sends what that client sent. */
  #sameHello({ to }: Passed, whose: string): DialError {
    const leadsBack = to && to.socket.bytesRead === 0;
    if (leadsBack) this.addresses.leadsBack(to);
    const text = leadsBack
      ? `the connection came back: ${to.address} is the plane itself, and not the API server of ${whose}`
      : 'another connection has begun with the same ClientHello';
    return new DialError('destination_ip_prohibited', text);
  }

  #try({ server, dial, timeoutMs }: Client): Promise<Reached> {
    const left = () => new DialError('connection_terminated', 'the client left');
    if (dial.signal.aborted) return Promise.reject(left());
    const late = `no address answered within ${timeoutMs / 1000} s`;
    const pending = new PendingDial<Reached>(dial, {
      deadline: performance.now() + timeoutMs,
      guarded: guarding((error) => pending.fail(asDialError(error))),
      cancel: () => stop(!dial.signal.aborted),
      abandoned: left,
      expired: () => new DialError('connection_timeout', late),
    });
    const reaching = {
      reached: (reached: Reached) => pending.succeed(reached),
      failed(error: NodeJS.ErrnoException, address: string) {
        dial.destination = parseDestination(address);
        pending.fail(error.code === undefined ? prohibited(error) : connectError(dial, error));
      },
    };
    const stop = this.addresses.connect(server.addresses, reaching, server.ofObject);
    return pending.answer;
  }
}

function dialOf(socket: Socket, { serverName }: NamedHello, { tenant, addresses }: ApiServer): OwnDial {
  const remote = remoteOf(socket);
  return {
    id: randomHex(8),
    tenant,
    destination: parseDestination(addresses[0] ?? ''),
    deadline: performance.now() + TRANSPORT.apiServerConnectMs,
    signal: new DialAbort(),
    caller: { via: 'api-server', identity: remote, remote, local: localOf(socket), serverName },
  };
}

/** None of the addresses can be an API server's. */
function prohibited({ message }: Error): DialError {
  return new DialError('destination_ip_prohibited', message);
}
