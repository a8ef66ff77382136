import type { Duplex } from 'node:stream';
import type { ResumableTunnel } from '../events.ts';
import type { ByteMeter } from '../limits/byte-meter.ts';
import type { AnyPrincipal } from '../names.ts';
import type { Resumable, ResumeOffer } from '../resume/carrier.ts';
import type { Destination } from './destination.ts';
import type { DialSignal } from './dial-abort.ts';
import type { DialLog } from './dial-log.ts';
import type { DialPolicy } from './policy.ts';

/** What callers speak at a gateway's edge. */
export type CallerProtocol = 'grpc' | 'http-connect';

/** Who dials: a peer on a unix socket, the subject of a client certificate, or an operator on the admin port. */
export interface Caller {
  readonly via: CallerProtocol | 'admin';
  /** `uds`, or the certificate's subject (`CN=...`), or `host:port` of a plain TCP peer; `admin` for an operator. */
  readonly identity: string;
  /** Where it comes from: `uds`, or `host:port`. */
  readonly remote?: string;
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
   * it (`pendingDial` in libs/transport); `Attempts` does so while the dial is parked.
   */
  readonly deadline: number;
  /** W3C trace context of the span this dial belongs to. A part that starts a span for the dial puts its own here. */
  traceparent?: string;
  /** The session to dial through; unset at the caller's edge, before the gateway has chosen one. */
  readonly session?: string;
  /** Dial only through this agent and ignore the strategies. For operators who test one agent. */
  readonly agent?: string;
  readonly caller?: Caller;
  /** The name of the caller's principal, as the other side of a link said. Unset at a gateway, which has `caller`. */
  readonly callerName?: string;
  /** What the callers of the tenant may dial. An agent whose hub has said it sets it. */
  policy?: DialPolicy;
  /** Set if the tunnel may outlive the links that carry it. The gateway sets it, and hubs pass it on. */
  resume?: ResumeOffer;
  /** What the gateway has done for the dial so far. Made where a caller's dial enters the plane; no link carries it. */
  readonly log?: DialLog;
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

/** A stream that carries marks beside its bytes (docs/RESUME.md). */
export interface MarkStream {
  mark(payload: Uint8Array): void;
  onMarks(marks: (payload: Uint8Array) => void): void;
}

/** One side of a tunnel: bytes in both directions with back-pressure; `stream.end()` is the half-close. */
export interface TunnelEnd {
  readonly stream: Duplex;
  /** False if the protocol behind it has no half-close (ANP's packets): the end of one direction then ends both. */
  readonly halfOpen: boolean;
  /** Translates a failure of the stream into its real reason. Unset: the failure is the reason. */
  readonly explain?: (failure: Error) => Error;
  /**
   * Calls back once this end has left the session that it began on: it is closed, or was taken over as a carrier. Unset: it does when the
   * stream closes.
   */
  readonly whenLeft?: (left: () => void) => void;
  /** Set at a gateway if the tunnel can be resumed. */
  readonly resumable?: ResumableTunnel;
  /** Set if the tunnel may be resumed by its two ends: what lies between them passes on their marks. */
  readonly marks?: MarkStream;
  /** Grows with each byte that arrives at the tunnel's far end, if this end waits for that. Unset: it does not. */
  readonly progress?: () => number;
  /**
   * Calls back once what was written has reached the tunnel's far end, as far as this end can know. Unset: once it was written.
   * @param silentMs how long ago the last of it was written, in milliseconds
   */
  readonly delivered?: (then: () => void, silentMs: number) => void;
  /**
   * Cuts both ways at once and drops what is queued. Whoever is behind this end sees a reset, and not an orderly end, where its protocol has
   * one. Safe to call more than once, never throws, never waits.
   */
  abort(reason: Error): void;
}

/** Where a dial's time went, in milliseconds, as each part reported on the way back; absent if a part does not report (ANP's agents). */
export interface DialTiming {
  readonly dnsMs?: number;
  readonly connectMs?: number;
  /** The agent's total, DNS and connect included. */
  readonly agentMs?: number;
  /** The hub's total, the agent's time included. */
  readonly hubMs?: number;
}

/** A dial that succeeded. */
export interface Established {
  readonly end: TunnelEnd;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  /** Who the agent is by its credential, as its hub says: `acme/agent/edge-1`. Unset where no tenants are configured. */
  readonly agentPrincipal?: string;
  readonly timing: DialTiming;
  /** Meters the tunnel's bytes; set where the tenant has limits (`DialLimiter`). */
  readonly meter?: ByteMeter;
  /** Set if the tunnel may be resumed. The gateway takes its carrier; a hub passes on `end`, with its marks. */
  readonly resume?: Resumable;
}

/** Opens a tunnel. Each part of the plane offers this function to the part before it. Rejects with a DialError. */
export type Dial = (request: DialRequest) => Promise<Established>;
