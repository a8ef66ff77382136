import { randomHex } from '@isthmus/runtime';
import {
  asDialError,
  type Caller,
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

export interface ServeDialOptions {
  readonly role: Role;
  readonly dial: Dial;
  readonly events: PlaneEvents;
  /** How long a tunnel may be silent once a side has half-closed, in milliseconds. */
  readonly halfClosedMs?: number | undefined;
}

/** The side that waits for a dial's answer. */
export interface Waiter {
  /** Sends the answer. Returns the caller's end of the tunnel, or undefined if nobody waits any longer. */
  accept(established: Established): TunnelEnd | undefined;
  /** Sends the error, if anybody still waits. */
  refuse(error: DialError): void;
  /** Called if the dial succeeded and nobody waits any longer. */
  unanswered?(): void;
}

/**
 * Dials, answers the side that waits, and joins both in a tunnel. Closes the destination if nobody waits any longer. Returns undefined
 * without a tunnel.
 */
export async function serveDial(
  request: ServedDial,
  waiter: Waiter,
  { role, dial, events, halfClosedMs }: ServeDialOptions,
): Promise<Tunnel | undefined> {
  let established: Established | undefined;
  let caller: TunnelEnd | undefined;
  try {
    established = await dial(request);
    if (!request.signal.aborted) caller = waiter.accept(established);
  } catch (error) {
    established?.end.abort(error as Error);
    waiter.refuse(asDialError(error));
    return undefined;
  }
  if (caller) return new Tunnel(role, request, caller, established, events, halfClosedMs);
  established.end.abort(request.signal.reason);
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
