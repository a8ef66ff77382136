import type { Destination, DialPolicy } from './destination.ts';
import type { DestinationEnd } from './end.ts';
import type { CutBy, DialError, DialErrorCode, DialTiming, PlaneEnded } from './errors.ts';
import type { ByteMeter } from './limits/byte-meter.ts';
import type { AnyPrincipal } from './names.ts';
import type { AttachAnswer, AttachClaim, Carrier, ResumeOffer, Resumption } from './resume/carrier.ts';

/** What callers speak at a gateway's edge. */
export type CallerProtocol = 'grpc' | 'http-connect';

/**
 * Who dials: a peer on a unix socket, the subject of a client certificate, `isthmus hold` for its callers, an operator on the admin port, or a
 * client of an API server.
 */
export interface Caller {
  readonly via: CallerProtocol | 'hold' | 'admin' | 'api-server';
  /** `uds`, or the certificate's subject (`CN=...`), or `host:port` of a plain TCP peer; `admin` for an operator. */
  readonly identity: string;
  /** Where it comes from: `uds`, or `host:port`. Of a client of an API server also where it came to, itself or its agent. */
  readonly remote?: string;
  readonly local?: string;
  /** The name by which a client asked for its API server. */
  readonly serverName?: string;
  /** Unset where no tenants are configured, and for operators of the plane. */
  readonly principal?: AnyPrincipal;
}

/**
 * A dial. Each process makes one where the dial enters it, and a gateway one more for each attempt; no stage copies it. A stage that finds
 * something out writes it into one of the fields that are not readonly.
 */
export interface DialRequest {
  /** Unique in the plane; 16 hexadecimal digits. */
  readonly id: string;
  readonly tenant: string;
  readonly destination: Destination;
  /**
   * Deadline for the answer, in milliseconds of `performance.now()` of this process. Set where the dial enters the plane (`newDial` in
   * libs/transport), and passed over links as the time left. Every part that waits for another part's answer, or for a socket, enforces
   * it (`PendingDial` in libs/transport); `Attempts` does so while the dial is parked.
   */
  readonly deadline: number;
  /** W3C trace context of the span this dial belongs to. A part that starts a span for the dial puts its own here. */
  traceparent?: string | undefined;
  /** The session to dial through; unset at the caller's edge, before the gateway has chosen one. */
  readonly session?: string;
  /** Dial only through this agent and ignore the strategies. For operators who test one agent. */
  readonly agent?: string | undefined;
  readonly caller?: Caller | undefined;
  /** The name of the caller's principal, as the other side of a link said. Unset at a gateway, which has `caller`. */
  readonly callerName?: string | undefined;
  /** An operator tries it: nobody misses what it does not reach, so it counts nowhere. */
  readonly trial?: boolean | undefined;
  /** What the callers of the tenant may dial. An agent whose hub has said it sets it. */
  policy?: DialPolicy | undefined;
  /** Set if the tunnel may outlive the links that carry it. The gateway sets it, and hubs pass it on. */
  resumeOffer?: ResumeOffer | undefined;
  /** What the gateway has done for the dial so far. Made where a caller's dial enters the plane; no link carries it. */
  readonly log?: DialLog | undefined;
  /** Called when the agent has received the dial, so it is alive. For ANP's agents, which do not say so: when the dial was sent. */
  readonly acknowledged?: () => void;
  /** Called by each link that passes the dial on, with its round-trip time in milliseconds: an acknowledgement takes that long from now. */
  readonly underWay?: (roundTripMs: number) => void;
  /** Aborts when nobody waits for the answer any more. */
  readonly signal: DialSignal;
}

/** Returns the name of the caller's principal; empty if it has none. An operator is no caller, whatever its name. */
export function callerName({ caller, callerName: name = '' }: Pick<DialRequest, 'caller' | 'callerName'>): string {
  const principal = caller?.principal;
  if (!principal) return name;
  return principal.role === 'caller' ? principal.name : '';
}

/** A gateway's tunnel to an agent that can resume it; live. */
export interface ResumableTunnel {
  readonly dial: Pick<DialRequest, 'id' | 'tenant' | 'destination'>;
  readonly agentId: string;
  /** The session that carries it, or was the last to do so. */
  readonly sessionId: string;
  readonly hubId: string;
  readonly attached: boolean;
  /** How often it has gone on through another stream. */
  readonly moves: number;
  /** Bytes that its agent has not acknowledged. */
  readonly kept: number;
}

/** A side of a tunnel, as seen from the plane. */
export type TunnelSide = 'caller' | 'destination';

/**
 * How a tunnel ended. Between two causes, `Tunnel` decides.
 * - `closed`: a side ended it, in order.
 * - `failed`: a side failed or went away, or something failed after a side had ended in order. Where a carrier is only passed on, its loss is
 *   the caller's failure, because the caller's half replaces it.
 * - `cut`: neither side ended it.
 */
export type TunnelOutcome =
  | { readonly how: 'closed'; readonly by: TunnelSide; readonly error?: undefined }
  | { readonly how: 'failed'; readonly by: TunnelSide; readonly error: Error }
  | { readonly how: 'cut'; readonly by: CutBy; readonly error: PlaneEnded };

/** A dial that succeeded. A link makes one; a stage that adds or replaces something writes it into a field that is not readonly. */
export interface Established {
  end: DestinationEnd;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  /** Who the agent is by its credential, as its hub says: `acme/agent/edge-1`. Unset where no tenants are configured. */
  agentPrincipal?: string;
  timing: DialTiming;
  /** Meters the tunnel's bytes; set where the tenant has limits (`DialLimiter`). */
  meter?: ByteMeter;
  /**
   * Set if the tunnel may be resumed. The gateway takes its carrier; a hub passes on `end`.
   */
  resumption?: Resumption | undefined;
  /** Set at a gateway whose half `end` is. */
  resumable?: ResumableTunnel;
}

/** Opens a tunnel. Each part of the plane offers this function to the part before it. Rejects with a DialError. */
export type Dial = (request: DialRequest) => Promise<Established>;

/**
 * Asks an agent to go on with a tunnel over the stream of the answer (docs/RESUME.md). It names the tunnel as the dial did that began it.
 * It is no dial. Only a gateway counts and meters those of `isthmus hold` (`DialLimiter.limitAttaches`).
 */
export interface AttachRequest
  extends Pick<
    DialRequest,
    'id' | 'tenant' | 'destination' | 'caller' | 'callerName' | 'deadline' | 'signal' | 'underWay'
  > {
  /** The session to attach through. From `isthmus hold`, the gateway: this one chooses the session. */
  readonly session: string;
  /** The agent's process at the tunnel's other end. `isthmus hold` sets it. */
  readonly process?: { readonly agentId: string; readonly instance: string };
  /** Whether the gateway's half is in the process at the other side of this link, and not behind a hub that passes it on. */
  halfAtPeer: boolean;
  readonly claim: AttachClaim;
  /** W3C trace context of the span this attach belongs to. A part that starts a span for it puts its own here. */
  traceparent?: string | undefined;
}

/** An attach that succeeded. */
export interface Attached extends Pick<Established, 'end' | 'agentId' | 'sessionId' | 'hubId' | 'meter'> {
  /** From where both halves go on. */
  readonly answer: AttachAnswer;
  /** The stream of the answer, for the gateway's half. A hub passes on `end` instead. */
  readonly carrier: Carrier;
}

/** Rejects with a DialError, caused by an AttachRefused if the agent has refused. The tunnel then stays as it was. */
export type Attach = (request: AttachRequest) => Promise<Attached>;

/** The next process on the way to an agent: a hub for a gateway, the agent for a hub. Over a link, or by a call if both are in one process. */
export interface NextHop {
  readonly dial: Dial;
  readonly attach: Attach;
}

/** Fires when nobody waits for a dial's answer any more. An AbortSignal or a DialAbort. */
export interface DialSignal {
  readonly aborted: boolean;
  /** The reason, once aborted. */
  readonly reason: Error;
  addEventListener(type: 'abort', listener: () => void, options?: { readonly once: true }): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

/**
 * An AbortController that is its own signal. Each dial creates three or four of them and hardly ever fires one. Creating one and
 * adding a listener takes 0.2 µs of CPU time; Node's AbortController takes 4 to 7 µs.
 */
export class DialAbort implements DialSignal {
  /** Its own methods alone change it. */
  aborted = false;
  readonly #listeners: (() => void)[] = [];
  #reason: Error | undefined;

  /** Created on demand if `abort` got no reason, because capturing an error's stack takes time. */
  get reason(): Error {
    this.#reason ??= new Error('nobody waits any more');
    return this.#reason;
  }

  /** Calls each listener once. Listeners must not throw: that would stop more than this dial. */
  abort(reason?: Error): void {
    if (this.aborted) return;
    this.aborted = true;
    this.#reason = reason;
    for (const listener of this.#listeners.splice(0)) listener();
  }

  addEventListener(_type: 'abort', listener: () => void): void {
    if (!this.aborted) this.#listeners.push(listener);
  }

  removeEventListener(_type: 'abort', listener: () => void): void {
    const at = this.#listeners.indexOf(listener);
    if (at >= 0) this.#listeners.splice(at, 1);
  }
}

/**
 * Why a gateway made an attempt: it was the first, an earlier one failed, or an earlier one was silent. `direct`: the gateway opened the socket
 * itself, without a session.
 */
export type AttemptKind = 'first' | 'retry' | 'hedge' | 'direct';

/** One try of a dial: through one session, or without any. */
export interface AttemptRecord {
  readonly kind: AttemptKind;
  readonly sessionId: string;
  readonly agentId: string;
  readonly hubId: string;
  /** Milliseconds of `performance.now()` of this process. */
  readonly start: number;
  /** Milliseconds; unset while it runs. */
  ms?: number;
  /** `overtaken`: another attempt was answered first, or the caller gave up. */
  outcome: 'running' | 'established' | 'failed' | 'overtaken';
  /** Why it failed. Unset for an attempt that was overtaken, or whose caller gave up. */
  error?: DialError;
}

/** What a gateway did for one dial. It grows while the dial runs, and is complete once the dial has its answer. */
export interface DialLog {
  /** In the order in which they started. */
  readonly attempts: AttemptRecord[];
  /** How long the dial waited for a session in total, in milliseconds; 0 for most. */
  parkedMs: number;
}

export function dialLog(): DialLog {
  return { attempts: [], parkedMs: 0 };
}

const REFUSALS: ReadonlySet<DialErrorCode> = new Set([
  'http_request_denied',
  'destination_ip_prohibited',
  'connection_limit_reached',
]);

/**
 * Whether a policy or a limit refused a dial before any agent had it. That costs its caller nothing, so it can come in floods.
 */
export function isRefusedDial({ log }: DialRequest, { code }: DialError): boolean {
  return REFUSALS.has(code) && (log === undefined || log.attempts.every(({ kind }) => kind === 'direct'));
}
