import { randomHex } from '@isthmus/runtime';
import {
  asDialError,
  type Caller,
  type Carried,
  DIRECT,
  type Dial,
  DialAbort,
  DialError,
  type DialRequest,
  dialLog,
  type Established,
  type PlaneEvents,
  parseDestination,
  SessionLost,
  Tunnel,
  type TunnelEnd,
  type TunnelRole,
} from '@isthmus/tunnel';

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
  /** Whether the tunnel goes on if this answer cannot be used: it is one to an attach. */
  readonly outlived?: boolean;
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
    const fail = (error: Error) =>
      answer.end.abort(waiter.outlived ? new SessionLost(error.message, { cause: error }) : error);
    let caller: TunnelEnd | undefined;
    try {
      if (!request.signal.aborted) caller = waiter.accept(answer);
    } catch (error) {
      fail(error as Error);
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
      fail(defect as Error);
      waiter.fault(defect as Error);
    }
  };
  return ask(request).then(answered, refuse);
}

/**
 * A dial that enters the plane here.
 * @param timeout how long it may take, in milliseconds
 * @throws DialError http_request_error for an address that is not `host:port`, or a protocol that is not `tcp`. Both may be long texts
 */
export function newDial(
  address: string,
  {
    tenant,
    timeout,
    protocol = 'tcp',
  }: { readonly tenant: string; readonly timeout: number; readonly protocol?: string },
  caller?: Caller,
  traceparent?: string,
): ServedDial {
  if (protocol !== 'tcp') {
    const text = `dial ${protocol.slice(0, 200)} ${address.slice(0, 200)}: unknown network, want tcp`;
    throw new DialError('http_request_error', text);
  }
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
