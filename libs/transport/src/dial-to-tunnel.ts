import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { randomHex } from '@isthmus/runtime';
import {
  asDialError,
  type Caller,
  type Carried,
  DIRECT,
  type Dial,
  DialAbort,
  type DialError,
  type DialRequest,
  dialLog,
  type Established,
  type PlaneEvents,
  parseDestination,
  Tunnel,
  type TunnelEnd,
  type TunnelRole,
} from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { belowOf } from './tls/certificate.ts';

/** A dial to serve. Its signal aborts when the side that waits for the answer has gone. */
export interface ServedDial extends DialRequest {
  readonly signal: DialAbort;
}

interface ServeOptions {
  readonly role: TunnelRole;
  readonly events: PlaneEvents;
  /** How long a tunnel may be silent once a side has half-closed, in milliseconds. */
  readonly halfClosedMs?: number | undefined;
}

export interface ServeDialOptions extends ServeOptions {
  readonly dial: Dial;
}

/** The side that waits for the answer to a dial or an attach. */
export interface Waiter<Answer = Established> {
  /** Sends the answer. Returns the caller's end of the tunnel, or undefined if nobody waits any longer. */
  accept(answer: Answer): TunnelEnd | undefined;
  /** Sends the error, if anybody still waits. */
  refuse(error: DialError): void;
  /** Called if the dial succeeded and nobody waits any longer. */
  unanswered?(): void;
  /** Called when the tunnel runs. */
  begun?(tunnel: Tunnel): void;
  /** Called if one of these throws where nothing else catches it. Ends what waits. */
  fault(error: Error): void;
}

/** Dials, and joins both sides in a tunnel: see `serve`. */
export function serveDial(request: ServedDial, waiter: Waiter, options: ServeDialOptions): Promise<void> {
  return serve(request, options.dial, waiter, options);
}

/**
 * Dials or attaches, answers the side that waits, and joins both in a tunnel. Closes the other side if nobody waits any longer. Resolves once
 * the side that waits has its answer, and never rejects.
 */
export function serve<Request extends ServedDial, Answer extends Carried>(
  request: Request,
  ask: (request: Request) => Promise<Answer>,
  waiter: Waiter<Answer>,
  { role, events, halfClosedMs }: ServeOptions,
): Promise<void> {
  const refuse = (error: unknown) => {
    try {
      waiter.refuse(asDialError(error));
    } catch (defect) {
      waiter.fault(defect as Error);
    }
  };
  const answered = (answer: Answer) => {
    let caller: TunnelEnd | undefined;
    try {
      if (!request.signal.aborted) caller = waiter.accept(answer);
    } catch (error) {
      answer.end.abort(error as Error);
      refuse(error);
      return;
    }
    try {
      if (!caller) {
        answer.end.abort(request.signal.reason);
        waiter.unanswered?.();
        return;
      }
      // A hub only passes on what a gateway has connected to an API server.
      const as = role === 'api-server' && answer.agentId !== DIRECT ? 'hub' : role;
      const tunnel = new Tunnel(as, request, caller, answer, events, halfClosedMs);
      waiter.begun?.(tunnel);
    } catch (defect) {
      waiter.fault(defect as Error);
    }
  };
  return ask(request).then(answered, refuse);
}

/**
 * A dial that enters the plane here.
 * @param timeout how long it may take, in milliseconds
 * @throws DialError http_request_error for an address that is not `host:port`
 */
export function newDial(
  address: string,
  { tenant, timeout }: { readonly tenant: string; readonly timeout: number },
  caller?: Caller,
  traceparent?: string,
): ServedDial {
  return {
    id: randomHex(8),
    tenant,
    destination: parseDestination(address),
    deadline: performance.now() + timeout,
    signal: new DialAbort(),
    log: dialLog(),
    ...(caller && { caller }),
    ...(traceparent !== undefined && { traceparent }),
  };
}

/** Whether a reset right behind bytes is read as an end: libuv before 1.52 does not read again after it (its pull request 4997). */
const HIDES_RESETS = /^1\.([0-4]?\d|5[01])\./.test(process.versions.uv ?? '');

/**
 * The end of a tunnel at a socket: a caller's, or a destination's. A cut resets the connection, so that no peer takes half an answer for
 * a whole one. Over TLS, that is the connection below, without a close_notify. A unix socket has no reset: its peer sees an end, and
 * ECONNRESET only if it had sent bytes that nobody has read.
 */
export function socketEnd(socket: Socket): TunnelEnd {
  // A unix socket has no reset, and TLS ends by a message of its own.
  if (HIDES_RESETS && !(socket instanceof TLSSocket) && tcpOf(socket) !== undefined)
    socket.prependListener('end', () => {
      if (wasReset(socket)) socket.destroy(Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' }));
    });
  return {
    stream: socket,
    halfOpen: true,
    abort: () => reset(socket),
    delivered(then, silentMs) {
      const ms = TRANSPORT.deliveryMs - silentMs;
      if (ms > 0 && tcpOf(socket)) setTimeout(then, ms).unref();
      else then();
    },
  };
}

/** Whether the kernel has no peer for a connection of which only the other side has ended. It has one after a FIN, unless what was written since drew a reset. */
function wasReset(socket: Socket): boolean {
  const handle: { getpeername?: (into: object) => number } | null = Reflect.get(socket, '_handle');
  return !socket.writableEnded && (handle?.getpeername?.({}) ?? 0) !== 0;
}

function reset(socket: Socket): void {
  // Node cannot reset a socket whose end is on its way. All its bytes have left by then.
  const ending = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (!ending) tcpOf(socket)?.resetAndDestroy();
  socket.destroy();
}

/** Returns the TCP connection; undefined for a unix socket, or after the end. */
export function tcpOf(socket: Socket): Socket | undefined {
  const connection = socket instanceof TLSSocket ? belowOf(socket) : socket;
  return connection?.remotePort === undefined ? undefined : connection;
}
