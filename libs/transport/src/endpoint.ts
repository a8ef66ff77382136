import { getServers } from 'node:dns';
import net, { isIP, type Socket } from 'node:net';
import { connectFirst, descriptors, type Guarded, guarding, names, shortReads } from '@isthmus/runtime';
import {
  asDialError,
  callerName,
  type Destination,
  type Dial,
  DialError,
  type DialErrorCode,
  type DialPolicy,
  type DialRequest,
  type DialStep,
  type DialTiming,
  type DialTracer,
  formatDestination,
  NotAuthorised,
  type PlaneEvents,
  type Prohibited,
} from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { PendingDial } from './dials.ts';
import { SocketEnd } from './socket-end.ts';

/** The address to connect to. Upstream's agents treat the unspecified address as their own loopback, and API servers rely on it. */
function targetOf({ host }: Destination): string {
  return host === '::' ? '::1' : host === '0.0.0.0' ? '127.0.0.1' : host;
}

/** Node names in an error what it tried to connect to. With several addresses, each has an error of its own. */
function peerIn(cause: unknown): Destination | undefined {
  const first = cause instanceof AggregateError ? cause.errors[0] : cause;
  const { address, port } = (first ?? {}) as { address?: unknown; port?: unknown };
  return typeof address === 'string' && typeof port === 'number' ? { host: address, port } : undefined;
}

/** What an agent does not dial, whatever a plane asks of it, or a gateway that dials itself. */
export interface OwnRules {
  /** Decides which addresses are not dialled. Default: none. */
  readonly prohibited?: Prohibited;
  /** The flag that lifts a prohibition. Default: the agents'. */
  readonly liftedBy?: '--allow-destinations' | '--direct-destinations';
  /** The agent's own lists of what it dials. Its rules have the names of their entries. Default: everything. */
  readonly lists?: DialPolicy;
}

/**
 * Returns why an address is not dialled, or undefined. Without an address: why the name is not, before it is resolved.
 *
 * Addresses are checked against the agent's own rules, and then against its tenant's. The address is the one that the agent would connect
 * to, so no spelling and no resolver's answer can bypass a rule. Each refusal is final: other agents have the same rules, and
 * strategies decide which agent may dial what, not retries.
 */
export function refusalOf(
  request: DialRequest,
  { prohibited, liftedBy = '--allow-destinations', lists }: OwnRules,
  address?: string,
): DialError | undefined {
  const { destination, tenant } = request;
  const refused = (why: string, rule: string) => {
    const target = formatDestination(destination);
    const text = `dial tcp ${target}: ${why}`;
    const cause = new NotAuthorised(text, { rule, destination: target, tenant });
    return new DialError('destination_ip_prohibited', text, { cause });
  };
  const rule = address === undefined ? undefined : prohibited?.(address, destination.port);
  const who = liftedBy === '--allow-destinations' ? 'agents do' : 'a gateway does';
  if (rule) return refused(`${who} not dial ${address} (${rule}); ${liftedBy}=${rule} lifts this`, rule);
  const host = address ?? destination.host;
  const own = lists && refusingRule(request, lists, address);
  if (own === '')
    return refused(`this agent does not dial ${host}: it is not in its --allow-destinations`, '--allow-destinations');
  if (own) return refused(`this agent does not dial ${host}: --deny-destinations=${own}`, `--deny-destinations=${own}`);
  const tenants = request.policy && refusingRule(request, request.policy, address);
  if (tenants === undefined) return undefined;
  const name = tenants || 'allow';
  return refused(`the policy of tenant ${tenant} refuses ${host} (rule ${name})`, `dial.${name}`);
}

/** Returns the rule that refuses a dial; empty if none allows it, undefined if it is allowed. */
function refusingRule(request: DialRequest, policy: DialPolicy, address: string | undefined): string | undefined {
  const { port } = request.destination;
  const named = isIP(request.destination.host) === 0;
  const host = targetOf(request.destination);
  const { allowed, rule } = policy.verdict(
    { host, port },
    callerName(request),
    named && address !== undefined ? [address] : [],
  );
  // What no rule allows by its name may be allowed by its addresses.
  return allowed || (address === undefined && rule === '') ? undefined : rule;
}

const DNS_PORT = 53;

/**
 * Go's words for the resolver that answered no (`lookup NAME on 10.0.0.10:53: no such host`). getaddrinfo does not tell which resolver
 * it was, so it is known only if there is just one, as in a pod.
 */
export function onResolver(servers: readonly string[] = getServers()): string {
  const [only, ...others] = new Set(servers);
  return only === undefined || others.length > 0 ? '' : ` on ${resolverAddress(only)}`;
}

/** @param server as `getServers` returns it: without a port if that is 53 */
export function resolverAddress(server: string): string {
  return isIP(server) === 0 ? server : formatDestination({ host: server, port: DNS_PORT });
}

interface EndpointOptions extends OwnRules {
  readonly agentId: string;
  /** Gets the destinations that could not be reached. */
  readonly events?: PlaneEvents;
  /** Gets each name that was resolved and each connection that was tried. */
  readonly tracer?: DialTracer | undefined;
}

/** The agent's Dial: opens the destination's socket. Errors have Go's words (`dial tcp h:p: connect: connection refused`). */
export function endpointDial(options: EndpointOptions): Dial {
  return (request) => {
    if (request.signal.aborted) return Promise.reject(abandoned());
    return new EndpointDial(request, options).pending.answer;
  };
}

/** An agent's dial. Its steps, the lookup of a name and the connection, are timed: they are emitted as spans, and sent back. */
class EndpointDial {
  readonly pending: PendingDial;
  readonly #request: DialRequest;
  readonly #options: EndpointOptions;
  readonly #start = performance.now();
  readonly #named: boolean;
  /** When there was an address to connect to: the start, if the destination is an address. */
  #resolved: number | undefined;
  #giveUp = () => {};

  constructor(request: DialRequest, options: EndpointOptions) {
    this.#request = request;
    this.#options = options;
    this.#named = isIP(request.destination.host) === 0;
    if (!this.#named) this.#resolved = this.#start;
    // A defect fails the dial: one in the callback for the acknowledgement, say.
    const guarded = guarding((error) => {
      this.#giveUp();
      this.pending.fail(asDialError(error));
      options.events?.emit('fault', 'destination', formatDestination(request.destination), error);
    });
    const deadline = Math.min(this.#start + TRANSPORT.destinationConnectMs, request.deadline);
    this.pending = new PendingDial(request, {
      guarded,
      deadline,
      meanwhile: {
        due: Math.min(this.#start + TRANSPORT.acknowledgeAfterMs, deadline),
        act: () => request.acknowledged?.(),
      },
      abandoned: () => this.#timed(abandoned()),
      expired: () => this.#expired(),
      cancel: () => this.#giveUp(),
    });
    this.#reach(guarded);
  }

  #reach(guarded: Guarded): void {
    const { port } = this.#request.destination;
    const host = targetOf(this.#request.destination);
    const connected = guarded((socket: Socket) => this.#connected(socket));
    const failed = guarded((error: NodeJS.ErrnoException) => this.#refuse(error));
    const connect = (addresses: readonly string[]) => {
      this.#giveUp = connectFirst(addresses, { open: (address) => openTo(address, port), connected, failed });
    };
    const resolved = guarded((error: Error | null, found: readonly { readonly address: string }[]) => {
      if (error) return this.#refuse(error);
      this.#resolved = performance.now();
      const refusals = found.map(({ address }) => refusalOf(this.#request, this.#options, address));
      // Only the allowed ones of several addresses are tried: judging the name again later could give another answer.
      const allowed = found.filter((_, index) => refusals[index] === undefined);
      if (allowed.length === 0 && refusals[0]) this.#refuse(refusals[0]);
      else connect(allowed.map(({ address }) => address));
    });
    const refused = refusalOf(this.#request, this.#options, this.#named ? undefined : host);
    if (refused) failed(refused);
    else if (this.#named) this.#giveUp = names.resolve(host, resolved);
    else connect([host]);
  }

  #connected(socket: Socket): void {
    const { destination, session: sessionId = '' } = this.#request;
    // This asks the system, which costs a tenth of a connection, so only if there is no other way to know.
    const { remoteAddress: address, remotePort: port } = this.#named
      ? socket
      : { remoteAddress: targetOf(destination), remotePort: destination.port };
    const timing = this.#ended(address !== undefined && port !== undefined ? { peer: { address, port } } : {});
    const end = new SocketEnd(socket);
    this.pending.succeed({ end, agentId: this.#options.agentId, sessionId, hubId: '', timing });
  }

  #refuse(error: NodeJS.ErrnoException): void {
    const { events } = this.#options;
    const refused = error instanceof DialError;
    if (!this.#request.trial) {
      if (refused) events?.emit('refused', 'destination', formatDestination(this.#request.destination), error);
      events?.emit('endpoint:failure', error.code === 'ETIMEDOUT');
    }
    this.pending.fail(this.#timed(refused ? error : connectError(this.#request, error)));
  }

  /** If the dial's deadline passed before the agent's own, the error is the same whichever part of the plane reports it first. */
  #expired(): DialError {
    const { destination, trial, deadline } = this.#request;
    const expired = deadline < this.#start + TRANSPORT.destinationConnectMs;
    if (!trial) this.#options.events?.emit('endpoint:failure', true);
    if (this.#resolved !== undefined) {
      const text = `dial tcp ${formatDestination(destination)}: i/o timeout`;
      return this.#timed(new DialError('connection_timeout', text, { expired }));
    }
    const text = `dial tcp: lookup ${destination.host}: i/o timeout`;
    return this.#timed(new DialError('dns_timeout', text, { retryable: !expired, expired }));
  }

  #timed(error: DialError): DialError {
    const { destination } = this.#request;
    const { port } = destination;
    const peer = peerIn(error.cause) ?? (this.#named ? undefined : { host: targetOf(destination), port });
    error.timing = this.#ended({ error, ...(peer && { peer: { address: peer.host, port: peer.port } }) });
    return error;
  }

  #ended(outcome: Pick<DialStep, 'error' | 'peer'>): DialTiming {
    const { tracer } = this.#options;
    const [request, start, resolved, end] = [this.#request, this.#start, this.#resolved, performance.now()];
    if (resolved === undefined) {
      const { error } = outcome;
      tracer?.step('agent.dns', request, { start, end, ...(error && { error }) });
      return { dnsMs: end - start };
    }
    if (this.#named) tracer?.step('agent.dns', request, { start, end: resolved });
    tracer?.step('agent.connect', request, { start: resolved, end, ...outcome });
    return { connectMs: end - resolved, ...(this.#named && { dnsMs: resolved - start }) };
  }
}

function abandoned(): DialError {
  return new DialError('connection_terminated', 'the dial was abandoned');
}

/**
 * While nobody reads, further bytes stay in the kernel, and with them a reset that follows them. Node discards what it has buffered when it
 * reads the reset.
 */
const UNREAD = { readableHighWaterMark: 1 };

/** Starts to connect to an address. */
export function openTo(host: string, port: number): Socket {
  descriptors.opened();
  const socket: Socket = net.connect({
    ...{ host, port, noDelay: true, allowHalfOpen: true, ...UNREAD },
    ...shortReads(() => socket),
  });
  return socket;
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
  // No server answers: nothing is known about the name.
  EAI_AGAIN: ['dns_timeout', 'Temporary failure in name resolution', true],
  EAI_FAIL: ['dns_error', 'server misbehaving', false],
};

export function connectError(request: Pick<DialRequest, 'destination'>, thrown: NodeJS.ErrnoException): DialError {
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
