import { randomHex } from '@isthmus/runtime';
import {
  asDialError,
  type Caller,
  type Carried,
  type Dial,
  DialAbort,
  type DialError,
  type DialRequest,
  dialLog,
  type Established,
  type PlaneEvents,
  parseDestination,
  type Role,
  Tunnel,
  type TunnelEnd,
} from '@isthmus/tunnel';

/** A dial to serve. Its signal aborts when the side that waits for the answer has gone. */
export interface ServedDial extends DialRequest {
  readonly signal: DialAbort;
}

export interface ServeOptions {
  readonly role: Role;
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
}

/** Dials, and joins both sides in a tunnel: see `serve`. */
export function serveDial(request: ServedDial, waiter: Waiter, options: ServeDialOptions): Promise<Tunnel | undefined> {
  return serve(request, options.dial, waiter, options);
}

/**
 * Dials or attaches, answers the side that waits, and joins both in a tunnel. Closes the other side if nobody waits any longer. Returns
 * undefined without a tunnel.
 */
export async function serve<Request extends ServedDial, Answer extends Carried>(
  request: Request,
  ask: (request: Request) => Promise<Answer>,
  waiter: Waiter<Answer>,
  { role, events, halfClosedMs }: ServeOptions,
): Promise<Tunnel | undefined> {
  let answer: Answer | undefined;
  let caller: TunnelEnd | undefined;
  try {
    answer = await ask(request);
    if (!request.signal.aborted) caller = waiter.accept(answer);
  } catch (error) {
    answer?.end.abort(error as Error);
    waiter.refuse(asDialError(error));
    return undefined;
  }
  if (caller) return new Tunnel(role, request, caller, answer, events, halfClosedMs);
  answer.end.abort(request.signal.reason);
  waiter.unanswered?.();
  return undefined;
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
