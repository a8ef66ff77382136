import net, { isIP, type Socket } from 'node:net';
import { connectFirst, descriptors, type Guarded, guarding, keptAlive } from '@isthmus/runtime';
import {
  asDialError,
  type Dial,
  DialError,
  type DialErrorCode,
  type DialRequest,
  type DialTracer,
  formatDestination,
  noTracer,
  type PlaneEvents,
} from '@isthmus/tunnel';
import { pendingDial } from '../dial/pending-dial.ts';
import { socketEnd } from '../dial/socket-end.ts';
import { EndpointSteps, targetOf } from './endpoint-steps.ts';
import { type OwnRules, refusalOf } from './refusal.ts';
import { onResolver } from './resolver.ts';

/** How long an agent tries to reach a destination, in milliseconds. Upstream's agents answer after 5 s. */
const CONNECT_TIMEOUT = 5000;

/**
 * An agent acknowledges a connection that takes longer than this, in milliseconds. This is well before a gateway would try another
 * agent as well. Most connections are made by then, and their answer is acknowledgement enough.
 */
const ACKNOWLEDGE_AFTER = 50;

export interface EndpointOptions extends OwnRules {
  readonly agentId: string;
  /** Gets the destinations that could not be reached. */
  readonly events?: PlaneEvents;
  /** Gets each name that was resolved and each connection that was tried. */
  readonly tracer?: DialTracer;
  /** Milliseconds; for tests. */
  readonly connectTimeout?: number;
}

/** The agent's Dial: opens the destination's socket. Errors have Go's words (`dial tcp h:p: connect: connection refused`). */
export function endpointDial(options: EndpointOptions): Dial {
  const { agentId, events, tracer = noTracer, connectTimeout = CONNECT_TIMEOUT } = options;
  return async (request) => {
    if (request.signal.aborted) throw abandoned();
    const ownDeadline = performance.now() + connectTimeout;
    const steps = new EndpointSteps(request, tracer, refusalOf(request, options));
    let giveUp = () => {};
    // A defect fails the dial: one in the callback for the acknowledgement, say.
    const guarded = guarding((error) => {
      pending.fail(asDialError(error));
      events?.emit('fault', 'destination', formatDestination(request.destination), error);
    });
    const timed = (error: DialError) => {
      error.timing = steps.failed(error);
      return error;
    };
    const acknowledge = guarded(() => request.acknowledged?.());
    const acknowledging = setTimeout(acknowledge, ACKNOWLEDGE_AFTER);
    const pending = pendingDial(request, {
      guarded,
      deadline: Math.min(ownDeadline, request.deadline),
      abandoned: () => timed(abandoned()),
      expired() {
        events?.emit('endpoint:failure', true);
        return timed(timeoutError(request, steps, request.deadline < ownDeadline));
      },
      settled(error) {
        clearTimeout(acknowledging);
        if (error) giveUp();
      },
    });
    const refuse = guarded((error: NodeJS.ErrnoException) => {
      const refused = error instanceof DialError;
      if (refused) events?.emit('refused', 'destination', formatDestination(request.destination), error);
      events?.emit('endpoint:failure', error.code === 'ETIMEDOUT');
      pending.fail(timed(refused ? error : connectError(request, error)));
    });
    const connected = guarded((socket: Socket) => {
      const { session: sessionId = '' } = request;
      pending.succeed({ end: socketEnd(socket), agentId, sessionId, hubId: '', timing: steps.connected(socket) });
    });
    giveUp = reach(request, steps, { guarded, connected, refuse });
    return pending.answer;
  };
}

function abandoned(): DialError {
  return new DialError('connection_terminated', 'the dial was abandoned');
}

/**
 * net.Socket gives its copy of the options these values. Node 20 takes 2 µs for each that is not there yet, because V8 makes a new shape
 * for it.
 */
const SET_BY_NODE = { emitClose: false, autoDestroy: true, decodeStrings: false };

/**
 * While nobody reads, further bytes stay in the kernel, and with them a reset that follows them. Node discards what it has buffered when it
 * reads the reset.
 */
const UNREAD = { readableHighWaterMark: 1 };

interface Reaching {
  readonly guarded: Guarded;
  readonly connected: (socket: Socket) => void;
  readonly refuse: (error: NodeJS.ErrnoException) => void;
}

/** @returns what gives up */
function reach(
  { destination }: DialRequest,
  steps: EndpointSteps,
  { guarded, connected, refuse }: Reaching,
): () => void {
  const host = targetOf(destination);
  const connect = (addresses: readonly string[]) =>
    connectFirst(addresses, { open: (address) => open(address, destination.port), connected, failed: refuse });
  const named = isIP(host) === 0;
  const refused = steps.refused(named ? undefined : host);
  if (refused) refuse(refused);
  if (refused) return () => {};
  if (!named) return connect([host]);
  const resolved = guarded((error: Error | undefined, addresses: readonly string[]) => {
    if (error) refuse(error);
    else giveUp = connect(addresses);
  });
  let giveUp = steps.resolve(host, resolved);
  return () => giveUp();
}

function open(host: string, port: number): Socket {
  descriptors.opened();
  return keptAlive(net.connect({ host, port, noDelay: true, allowHalfOpen: true, ...UNREAD, ...SET_BY_NODE }));
}

const LIMIT_REACHED = 'connection_limit_reached';

/** The errors of connect(2) and getaddrinfo: our name for each, and Go's words. */
const FAILURES: Readonly<Record<string, readonly [DialErrorCode, string]>> = {
  ECONNREFUSED: ['connection_refused', 'connect: connection refused'],
  ECONNRESET: ['connection_refused', 'connect: connection reset by peer'],
  ETIMEDOUT: ['connection_timeout', 'connect: connection timed out'],
  EHOSTUNREACH: ['destination_ip_unroutable', 'connect: no route to host'],
  ENETUNREACH: ['destination_ip_unroutable', 'connect: network is unreachable'],
  EHOSTDOWN: ['destination_ip_unroutable', 'connect: host is down'],
  EADDRNOTAVAIL: ['destination_ip_unroutable', 'connect: cannot assign requested address'],
  EINVAL: ['destination_ip_unroutable', 'connect: invalid argument'],
  // A prohibiting route or a firewall.
  EACCES: ['destination_ip_prohibited', 'connect: permission denied'],
  EPERM: ['destination_ip_prohibited', 'connect: operation not permitted'],
  EMFILE: [LIMIT_REACHED, 'socket: too many open files'],
  ENFILE: [LIMIT_REACHED, 'socket: too many open files in system'],
};

/** The same of a lookup, and whether another agent may know more. */
const LOOKUPS: Readonly<Record<string, readonly [DialErrorCode, string, boolean]>> = {
  ETIMEOUT: ['dns_timeout', 'i/o timeout', true],
  EAI_AGAIN: ['dns_error', 'Temporary failure in name resolution', true],
  EAI_FAIL: ['dns_error', 'server misbehaving', false],
};

function connectError(request: DialRequest, thrown: NodeJS.ErrnoException): DialError {
  const { host } = request.destination;
  const target = formatDestination(request.destination);
  // With several addresses, each has failed in its own way. Upstream reports the first.
  const error = thrown instanceof AggregateError ? (thrown.errors[0] as NodeJS.ErrnoException) : thrown;
  const code = error.code ?? '';
  // The resolver reads files and opens sockets too. Without descriptors it reports that there is no such name, or to try again.
  if (error.syscall === 'getaddrinfo' && descriptors.exhausted) {
    const text = `dial tcp: lookup ${host}: too many open files`;
    return new DialError(LIMIT_REACHED, text, { retryable: true, cause: thrown });
  }
  if (code === 'ENOTFOUND')
    return new DialError('dns_error', `dial tcp: lookup ${host}${onResolver()}: no such host`, { cause: thrown });
  if (error.syscall === 'getaddrinfo') {
    // Without a server that answers, nothing is known about the name, and another agent has other servers.
    const [name, words, retryable] = LOOKUPS[code] ?? (['dns_error', error.message, false] as const);
    return new DialError(name, `dial tcp: lookup ${host}: ${words}`, { retryable, cause: thrown });
  }
  const [name, words] = FAILURES[code] ?? (['proxy_internal_error', error.message] as const);
  // An agent without a free socket has sent nothing to the destination. Another agent may have one.
  return new DialError(name, `dial tcp ${target}: ${words}`, { retryable: name === LIMIT_REACHED, cause: thrown });
}

/**
 * @param expired the dial's deadline passed before the agent's own, so the error is the same whichever part of the plane reports it
 * first
 */
function timeoutError({ destination }: DialRequest, { resolving }: EndpointSteps, expired: boolean): DialError {
  if (resolving) {
    const text = `dial tcp: lookup ${destination.host}: i/o timeout`;
    return new DialError('dns_timeout', text, { retryable: !expired, expired });
  }
  return new DialError('connection_timeout', `dial tcp ${formatDestination(destination)}: i/o timeout`, { expired });
}
