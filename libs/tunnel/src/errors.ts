import { type RefusingLimit, TENANT_LIMITS } from './limits/table.ts';

/**
 * Why a dial failed: the error names of RFC 9209 section 2.3, as used in `Proxy-Status`, spans, audit and logs.
 * Each has the HTTP status that RFC 9209 recommends, or ANP's status where API servers rely on it.
 */
export const DIAL_ERRORS = {
  /** The destination answered with a reset. */
  connection_refused: { status: 502 },
  /** The destination did not answer in time. */
  connection_timeout: { status: 504 },
  /** No route, host down, network unreachable. */
  destination_ip_unroutable: { status: 502 },
  /** The name does not exist or the resolver answered with an error. */
  dns_error: { status: 502 },
  /** The resolver did not answer in time. */
  dns_timeout: { status: 504 },
  /** A policy forbids this destination. */
  destination_ip_prohibited: { status: 403 },
  /** The caller may not dial, nor may the gateway that dials for it. */
  http_request_denied: { status: 403 },
  /** The request is malformed. */
  http_request_error: { status: 400 },
  /** No agent can take the dial. */
  destination_unavailable: { status: 503 },
  /**
   * A limit of the plane is reached, which one the text says:
   * 1. A tenant has reached one of its limits at a gateway, or has too many dials without an answer at a gateway or agent
   *    (`DialLimiter`). Final; 429 if the limit is a rate. `limit` names it where tenants are configured.
   * 2. A process on the way has hardly any descriptors or memory left, and refuses before it dials (`refuseWhenScarce`). Retryable.
   * 3. An agent, or its resolver, had no descriptor for the socket (libs/transport: endpoint.ts), or a Go agent no port or buffer
   *    (packets/dial.ts). Retryable. After 2 and 3 the gateway suspects who refused for a while: the hub or the session.
   * 4. A Go server's packet stream carries too many tunnels to our agent already (libs/transport: packets/serve.ts). Final.
   */
  connection_limit_reached: { status: 503 },
  /** The session that carried the dial ended before the answer, or its hub is lost. A gateway waits for another to take its place. */
  connection_terminated: { status: 502 },
  /** The plane itself failed, or a peer dropped the dial or answered what cannot be read while its link goes on. */
  proxy_internal_error: { status: 502 },
} as const satisfies Record<string, { status: number }>;

export type DialErrorCode = keyof typeof DIAL_ERRORS;

/** Where a dial's time went, in milliseconds, as each part reported on the way back; absent if a part does not report (ANP's agents). */
export interface DialTiming {
  readonly dnsMs?: number;
  readonly connectMs?: number;
  /** The agent's total, DNS and connect included. */
  readonly agentMs?: number;
  /** The hub's total, the agent's time included. */
  readonly hubMs?: number;
}

interface DialErrorOptions {
  /**
   * No destination has answered, as far as is known, so another session may be tried. Default false.
   *
   * The gateway's `Attempts` act on it, for errors of hubs' Dials, which means behind `routed`. `GatewayHalf` tries to attach again
   * whatever this says, until the agent's refusal is final. Set there:
   * - The session or its hub was lost before the answer: LinkClient and PacketClient. The agent may have dialled, and may even have
   *   reached the destination, but no byte of the caller was sent.
   * - The hub does not hold the session any more, or gives it up: `SessionTable` of apps/backend-hub.
   * - A part behind lacked a socket or memory for the dial: endpoint.ts, packets/dial.ts; `refuseWhenScarce` in an agent or a hub.
   * - No DNS server answered the agent: the same two files.
   * - The agent leaves: `DialLimiter` in an agent.
   * - The answer could not be read as one of ours: link/dial-heads.ts, which otherwise passes on what the other end of the link said.
   *
   * Outside `routed` nobody retries in this process. There it only describes the failure, in the admin RPC and in a link's head:
   * `DialLimiter` and `refuseWhenScarce` of a gateway, and `Attempts` itself when no hub of a session can be reached.
   */
  readonly retryable?: boolean;
  /** The dial's own deadline passed without an answer, which says nothing about the destination. Default false. */
  readonly expired?: boolean;
  /** Seconds to wait before dialling again: 0 if another gateway takes the dial at once. Default 1. */
  readonly retryAfter?: number;
  /** The tenant's limit that refused the dial. */
  readonly limit?: RefusingLimit;
  readonly cause?: unknown;
  /** Where the time went until the failure. */
  readonly timing?: DialTiming;
}

/** A failed dial. `message` has Go's wording where ANP's callers read it. */
export class DialError extends Error {
  override readonly name = 'DialError';
  readonly code: DialErrorCode;
  readonly retryable: boolean;
  readonly expired: boolean;
  readonly retryAfter: number;
  readonly limit: RefusingLimit | undefined;
  /** Where the time went. Each part of the plane adds its own time as the error passes back. */
  timing: DialTiming;
  /** W3C trace context under which a gateway's logs and traces record the dial. */
  traceparent: string | undefined;

  constructor(code: DialErrorCode, message: string, options: DialErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.expired = options.expired ?? false;
    this.retryAfter = options.retryAfter ?? 1;
    this.limit = options.limit;
    this.timing = options.timing ?? {};
  }

  /** HTTP status for CONNECT callers and inner links. */
  get status(): number {
    return this.limit ? TENANT_LIMITS[this.limit].refuses : DIAL_ERRORS[this.code].status;
  }
}

export function isDialErrorCode(name: string): name is DialErrorCode {
  return Object.hasOwn(DIAL_ERRORS, name);
}

/** Turns any failure into a DialError. An unexpected failure becomes `proxy_internal_error`. */
export function asDialError(error: unknown): DialError {
  if (error instanceof DialError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new DialError('proxy_internal_error', message, { cause: error });
}

/**
 * What cut a tunnel: a part of the plane that ended or failed (`path`: something between agent and gateway, or what they cannot tell from
 * it), a limit, a policy that changed (where `isthmus hold` has to attach), a credential that no longer stands, or an operator. Links carry
 * the places in this list, so new ones come last.
 */
export const CUT_BY = ['path', 'agent', 'gateway', 'limit', 'policy', 'credential', 'operator', 'hold'] as const;

export type CutBy = (typeof CUT_BY)[number];

interface PlaneEndedOptions extends ErrorOptions {
  /** Default `path`. */
  readonly by?: CutBy;
}

/** The plane cut a tunnel: neither caller nor destination closed it. */
export class PlaneEnded extends Error {
  override readonly name: string = 'PlaneEnded';
  readonly by: CutBy;

  constructor(message: string, { by = 'path', ...options }: PlaneEndedOptions = {}) {
    super(message, options);
    this.by = by;
  }
}

/** Returns the reason as a PlaneEnded, wrapped if it is another error. @param by what cuts the tunnel, if the reason does not say */
export function planeEnded(reason: Error, by?: CutBy): PlaneEnded {
  if (reason instanceof PlaneEnded) return reason;
  return new PlaneEnded(reason.message, { cause: reason, ...(by && { by }) });
}

/** A tunnel's reader read nothing for a while, and held up other tunnels. */
export class ReaderStalled extends PlaneEnded {
  override readonly name = 'ReaderStalled';

  constructor(message: string) {
    super(message, { by: 'limit' });
  }
}

/** The session that carried a tunnel ended: its link, or the packet stream of a Go agent. */
export class SessionLost extends PlaneEnded {
  override readonly name: string = 'SessionLost';
}

/** It ended because the connection was closed from the tunnel's other end, as happens when that process dies, or by a proxy on the way. */
export class HungUp extends SessionLost {
  override readonly name = 'HungUp';
}

/** It ended because something on the way reset the connection. */
export class LinkReset extends SessionLost {
  override readonly name = 'LinkReset';
}
