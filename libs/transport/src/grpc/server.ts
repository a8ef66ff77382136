import type { Socket } from 'node:net';
import { guarding, RandomSet, remoteOf, SharedBudget } from '@isthmus/runtime';
import { DialError, NotAuthorised, PlaneEnded, type PlaneEvents, planeEnded } from '@isthmus/tunnel';
import {
  Allowance,
  type Config,
  Connection,
  DEFAULT_FRAME,
  ErrorCode,
  type Field,
  greeting,
  type Http2Stream,
  hpackEncode,
  Metadata,
  readTimeout,
  ServerCall,
  StatusError,
  type StreamRules,
  statusFields,
  WIRE,
} from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { RequestRefused } from '../http1.ts';
import { type ConnectionPeer, peerOf } from '../listen.ts';
import { readersOf } from '../socket-end.ts';

/** How much the windows of all callers together may grow: a budget of their own, so that callers cannot shrink the links' windows. */
export const CALLERS_GROWTH = new SharedBudget(TRANSPORT.grpcGrowthBytes);

/**
 * Peers here are not trusted. Windows grow to 1 MiB only: callers are near, and longer queues survive a minor garbage collection. After an
 * answer the rest of a request is dropped, as in Go.
 */
const RULES: StreamRules = {
  countsAnswered: true,
  abandonsRequests: true,
  growth: { largest: TRANSPORT.grpcWindowBytes, budget: CALLERS_GROWTH, local: CALLERS_GROWTH },
};

/** The method of a server, which streams packets both ways. */
export interface GrpcService {
  /** `/Service/Method`. */
  readonly path: string;
  /** @param proven reports of which tenant the peer has proven to be, so that the limits of unproven peers no longer apply */
  readonly serve: (call: ServerCall<ConnectionPeer>, proven: (tenant: string) => void) => void;
}

export interface GrpcServerOptions {
  readonly service: GrpcService;
  readonly events: PlaneEvents;
  /** Names the server in events: `grpc callers`, `grpc agents`. */
  readonly name: string;
  /** How long a connection may be silent before it is pinged, in milliseconds. */
  readonly keepaliveMs: number;
  /** How much a peer may send ahead on one stream, in bytes. */
  readonly streamWindow: number;
  /** How many streams a peer may have open. Default 10,000. */
  readonly maxStreams?: number;
  /** How long the header fields of a request may be, in bytes. Default 64 KiB. */
  readonly maxFields?: number;
  /** The limits of a peer until a service says that it has proven who it is. Default: the same as afterwards. */
  readonly unproven?: PeerLimits;
}

/** What a peer may do on one connection. */
export interface PeerLimits {
  /** What it may send ahead on one stream, in bytes. */
  readonly streamWindow: number;
  /** Streams that it may have open. */
  readonly maxStreams: number;
}

/** Serves gRPC on connections that someone else accepts. */
export class GrpcServer {
  readonly #options: GrpcServerOptions;
  readonly #greeting: Buffer;
  /** What a peer may do at first, and once it has proven who it is. */
  readonly #first: Config;
  readonly #proven: Config;
  readonly #connections = new RandomSet<Connection>();
  #draining = false;
  /** Set by `close`. Called when the last connection has ended. */
  #idle = () => {};

  constructor(options: GrpcServerOptions) {
    const { unproven } = options;
    this.#options = options;
    this.#proven = {
      ...WIRE,
      windowBytes: options.streamWindow,
      streams: options.maxStreams ?? TRANSPORT.grpcStreams,
      frameBytes: DEFAULT_FRAME,
      headBytes: options.maxFields ?? TRANSPORT.grpcFieldsBytes,
      resets: TRANSPORT.grpcResets,
      backlogBytes: TRANSPORT.grpcBacklogBytes,
    };
    this.#first = unproven
      ? {
          ...this.#proven,
          windowBytes: unproven.streamWindow,
          streams: unproven.maxStreams,
          backlogBytes: TRANSPORT.grpcWaitingBacklogBytes,
        }
      : this.#proven;
    this.#greeting = greeting('server', this.#first);
  }

  get connections(): number {
    return this.#connections.size;
  }

  /**
   * Takes over an accepted connection whose first bytes are HTTP/2's.
   * @param first the bytes that were read from it
   */
  accept(socket: Socket, first?: Buffer): void {
    if (!this.#draining) this.#open(socket).start(first);
    else this.#turnAway(socket);
  }

  /** Nobody needs what it said. */
  #turnAway(socket: Socket): void {
    const { events, name } = this.#options;
    const guarded = guarding((error) => {
      socket.destroy();
      events.emit('fault', name, remoteOf(socket), error);
    });
    const answer = () => {
      if (socket.destroyed) return;
      const connection = this.#open(socket);
      connection.close();
      connection.start();
    };
    socket.pause();
    setTimeout(guarded(answer), TRANSPORT.turnedAwayAfterMs).unref();
  }

  /**
   * Asks every peer to connect elsewhere (GOAWAY), and lets its streams finish. A later peer gets a GOAWAY before it opens a stream, so
   * that its own library tries again.
   */
  drain(): void {
    this.#draining = true;
    for (const connection of this.#connections) connection.close();
  }

  /**
   * Asks every peer to leave for good (GOAWAY), waits up to `graceMs` for their streams, then ends the rest, which have up to two more
   * seconds to read why. A Go agent that gets a GOAWAY reconnects at once, so use this only when the process stops.
   */
  async close(graceMs: number): Promise<void> {
    this.drain();
    if (this.#connections.size === 0) return;
    const idle = new Promise<void>((resolve) => {
      this.#idle = resolve;
    });
    const reason = new PlaneEnded(`the server is stopping, and its streams did not end within ${graceMs / 1000} s`);
    const timer = setTimeout(() => {
      for (const connection of this.#connections) connection.destroy(reason);
    }, graceMs);
    await idle;
    clearTimeout(timer);
  }

  #open(socket: Socket): Connection {
    const { keepaliveMs, events, name } = this.#options;
    let peer: ConnectionPeer | undefined;
    let limits = this.#first;
    let refusals: Allowance | undefined;
    const refused = (why: Error) => {
      if (limits !== this.#first && isBusy(why)) return;
      refusals ??= new Allowance({ atOnce: TRANSPORT.challenges - 1, perSecond: 1000 / TRANSPORT.challengeMs });
      if (!refusals.spend(1)) connection.close();
    };
    const proven = (tenant: string) => {
      connection.reads.readers = readersOf(tenant);
      if (limits !== this.#proven) connection.allow(this.#proven);
      limits = this.#proven;
    };
    const connection = new Connection(socket, {
      role: 'server',
      config: this.#first,
      greeting: this.#greeting,
      rules: RULES,
      defer: process.nextTick,
      latePongs: true,
      keepaliveMs,
      lost: (reason, isFault) => (isFault ? planeEnded(reason) : reason),
      opened: (stream, request) => {
        peer ??= { ...peerOf(socket, (reason) => connection.destroy(planeEnded(reason, 'credential'), true)), refused };
        this.#serve(stream, request, peer, proven);
      },
      longHead: () => {
        const error = new RequestRefused(431, `the request's head is longer than ${this.#first.headBytes} bytes`);
        events.emit('refused', name, remoteOf(socket), error);
        refused(error);
      },
      failed: (error) => events.emit('refused', name, remoteOf(socket), error),
      fault: (error) => events.emit('fault', name, remoteOf(socket), error),
      closed: () => {
        this.#connections.delete(connection);
        if (this.#connections.size === 0) this.#idle();
      },
    });
    this.#connections.add(connection);
    return connection;
  }

  #serve(stream: Http2Stream, request: readonly Field[], peer: ConnectionPeer, proven: (tenant: string) => void): void {
    const metadata = new Metadata(request);
    const timeout = readTimeout(metadata.first('grpc-timeout'));
    const path = metadata.first(':path') ?? '';
    const { service } = this.#options;
    const refusal = refusalOf(metadata, timeout);
    if (metadata.first(':method') === 'CONNECT') this.#refuseConnect(stream, peer);
    else if (path === service.path && !refusal) service.serve(new ServerCall(stream, metadata, peer, timeout), proven);
    else {
      const [http, error] = refusal ?? [200, new StatusError('Unimplemented', `unknown method ${path}`)];
      refuse(stream, http, error);
      peer.refused?.(error);
    }
  }

  /** Clients that can dial by HTTP/1.1 too do so after this code (RFC 9113 section 7). */
  #refuseConnect(stream: Http2Stream, peer: ConnectionPeer): void {
    const error = new RequestRefused(405, 'CONNECT is not served over HTTP/2: use HTTP/1.1');
    stream.reset(ErrorCode.HTTP_1_1_REQUIRED);
    this.#options.events.emit('refused', this.#options.name, peer.remote, error);
    peer.refused?.(error);
  }
}

/** Returns the HTTP status and gRPC status with which Go's servers answer a request that is not gRPC as we speak it. */
function refusalOf(metadata: Metadata, timeout: number | undefined): [http: number, error: StatusError] | undefined {
  const method = metadata.first(':method');
  const type = metadata.first('content-type') ?? '';
  if (!/^application\/grpc(?:[+;]|$)/i.test(type)) {
    return [415, new StatusError('InvalidArgument', `invalid gRPC request content-type ${JSON.stringify(type)}`)];
  }
  if (Number.isNaN(timeout)) return [400, new StatusError('Internal', 'malformed grpc-timeout')];
  if (method !== 'POST') {
    const text = `Received a HEADERS frame with :method ${JSON.stringify(method)} which should be POST`;
    return [405, new StatusError('Internal', text)];
  }
  const encoding = metadata.first('grpc-encoding') ?? 'identity';
  if (encoding !== 'identity') {
    const text = `grpc: Decompressor is not installed for grpc-encoding ${JSON.stringify(encoding)}`;
    return [200, new StatusError('Unimplemented', text)];
  }
  return undefined;
}

/** Answers with trailers only. */
function refuse(stream: Http2Stream, http: number, error: StatusError): void {
  const fields: readonly Field[] = [
    [':status', String(http)],
    ['content-type', 'application/grpc'],
  ];
  stream.answer(hpackEncode([...fields, ...statusFields(error)]), true);
}

/** Whether a refusal does not speak against the caller: the plane has no room now, or nobody could judge. */
function isBusy(why: Error): boolean {
  if (why instanceof NotAuthorised) return why.undecided;
  return why instanceof DialError && (why.status === 429 || why.status >= 500);
}
