import { type Guarded, randomHex } from '@isthmus/runtime';
import {
  type Ask,
  asDialError,
  type Caller,
  type Carried,
  DIRECT,
  type Dial,
  DialAbort,
  DialError,
  type DialRequest,
  type Due,
  deadlines,
  dialLog,
  type Established,
  formatDestination,
  type NextHop,
  type PlaneEvents,
  parseDestination,
  SessionLost,
  Tunnel,
  type TunnelEnd,
  type TunnelRole,
} from '@isthmus/tunnel';

// A dial as each of two processes has it: the one that serves it, and the one that dials.

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

/** A connection to the next hop, as the side that dials has it: a link of ours, or the packet stream of a Go agent. */
export interface NextHopConnection extends NextHop {
  /** Dials and tunnels. */
  readonly open: number;
  /** Resolves with the reason when the connection and all its tunnels have ended. */
  readonly closed: Promise<Error>;
  /** Tells the other side that this side is about to close, so that it opens another session first. Still takes dials. */
  leave(): void;
  /** Takes no new dials, lets running tunnels finish, then ends the connection. The caller bounds this with `destroy`. */
  close(): void;
  /** Ends the connection and every tunnel on it. */
  destroy(reason: Error): void;
  /** As `destroy`, and tells the other side the reason. */
  destroyAndTell(reason: Error): void;
  /** Asks the process at the other side for an operator. Unset: it takes no questions, as Go agents. */
  readonly ask?: Ask;
}

interface DrainOptions {
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  /** Returns how many dials and tunnels are open. */
  readonly open: () => number;
  /** Ends the connection, because none is open any more. */
  readonly end: (reason: Error) => void;
}

/**
 * How a connection ends, by either side of a link. It is open; then, with a reason, takes no new dials, and ends when the last tunnel has
 * ended; then it is closed. Of several reasons, the first counts.
 */
export class Drain {
  readonly #closed = Promise.withResolvers<Error>();
  readonly closed = this.#closed.promise;
  readonly #options: DrainOptions;
  /** Why it takes no new dials; undefined while it does. Its own methods alone change it. */
  reason: Error | undefined;

  constructor(options: DrainOptions) {
    this.#options = options;
  }

  refuseDials(reason: Error): void {
    this.reason ??= reason;
  }

  /** Throws a retryable DialError if no new dial is taken. */
  check(): void {
    if (this.reason) throw this.errorOf(this.reason);
  }

  /** Call after a dial or tunnel has ended. */
  endIfIdle(): void {
    if (this.reason && this.#options.open() === 0) this.#options.end(this.reason);
  }

  /** Call when the connection and all its tunnels have ended. */
  over(reason: Error): void {
    this.refuseDials(reason);
    this.#closed.resolve(reason);
  }

  /** Returns the error of a dial that got no answer. It may have reached the destination. */
  errorOf(cause: Error): DialError {
    // A SessionLost names its peer already.
    const text = cause instanceof SessionLost ? cause.message : `${this.#options.peer}: ${cause.message}`;
    return new DialError('connection_terminated', text, { retryable: true, cause });
  }
}

export interface PendingDialOptions {
  /** When to stop waiting, in milliseconds of `performance.now()`. Default: the request's deadline. */
  readonly deadline?: number;
  /** What to do if there is no answer by then: in milliseconds of `performance.now()`, before the deadline. */
  readonly meanwhile?: { readonly due: number; readonly act: () => void };
  /** The errors of a dial whose caller has gone, and of one without an answer at its deadline. */
  readonly abandoned?: () => DialError;
  readonly expired?: (request: Pending) => DialError;
  /** Undoes what was started, if the caller has gone or the deadline has passed. */
  readonly cancel?: () => void;
  /** Called once, when the wait is over: without an error if the dial succeeded. */
  readonly settled?: (error?: DialError) => void;
  /** Handles what the callbacks above throw. */
  readonly guarded: Guarded;
}

/** What is asked for: a dial, or an attach. */
type Pending = Pick<DialRequest, 'destination' | 'deadline' | 'signal'>;

/** Waits for the answer to a dial or an attach. The first of these ends the wait: the answer, a failure, the caller's abort, the deadline. */
export class PendingDial<Answer = Established> implements Due {
  before: Due | undefined;
  behind: Due | undefined;
  due: number;
  /** Rejects with a DialError. */
  readonly answer: Promise<Answer>;
  readonly #request: Pending;
  readonly #deadline: number;
  readonly #options: PendingDialOptions;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: DialError) => void;
  readonly #abandon: () => void;
  #waits = true;

  /** @param request whose signal has not aborted before */
  constructor(request: Pending, options: PendingDialOptions) {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    this.answer = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#request = request;
    this.#options = options;
    this.#deadline = options.deadline ?? request.deadline;
    this.due = options.meanwhile?.due ?? this.#deadline;
    this.#abandon = options.guarded(() => this.#giveUp(options.abandoned ?? abandoned));
    request.signal.addEventListener('abort', this.#abandon, { once: true });
    deadlines.enter(this);
  }

  succeed(answer: Answer): void {
    if (!this.#settle()) return;
    this.#resolve(answer);
    this.#options.settled?.();
  }

  fail(error: DialError): void {
    if (!this.#settle()) return;
    this.#reject(error);
    this.#options.settled?.(error);
  }

  remind(): void {
    const { guarded, meanwhile, expired = tooLate } = this.#options;
    const deadline = this.#deadline;
    if (this.due === deadline || !meanwhile) {
      guarded(() => this.#giveUp(expired))();
      return;
    }
    this.due = deadline;
    deadlines.enter(this);
    guarded(meanwhile.act)();
  }

  #giveUp(why: (request: Pending) => DialError): void {
    if (!this.#waits) return;
    this.#options.cancel?.();
    this.fail(why(this.#request));
  }

  /** @returns false if it was settled before */
  #settle(): boolean {
    if (!this.#waits) return false;
    this.#waits = false;
    deadlines.leave(this);
    this.#request.signal.removeEventListener('abort', this.#abandon);
    return true;
  }
}

export function abandoned(): DialError {
  return new DialError('connection_terminated', 'the caller went away');
}

function tooLate({ destination }: Pending): DialError {
  const text = `dial tcp ${formatDestination(destination)}: i/o timeout (no answer within the dial's deadline)`;
  return new DialError('connection_timeout', text, { expired: true });
}
