import type { AttachAnswer, AttachClaim, Carrier } from '../resume/carrier.ts';
import type { Dial, DialRequest, Established } from './dial.ts';

/**
 * Asks an agent to go on with a tunnel over the stream of the answer (docs/RESUME.md). It names the tunnel as the dial did that began it. It
 * is no dial: nothing counts, limits or meters it as one.
 */
export interface AttachRequest
  extends Pick<
    DialRequest,
    'id' | 'tenant' | 'destination' | 'caller' | 'callerName' | 'deadline' | 'signal' | 'underWay'
  > {
  /** The session to attach through. */
  readonly session: string;
  /** Whether it comes from the gateway itself, and not from a hub that passes it on. */
  direct: boolean;
  readonly claim: AttachClaim;
  /** W3C trace context of the span this attach belongs to. A part that starts a span for it puts its own here. */
  traceparent?: string;
}

/** An attach that succeeded. */
export interface Attached extends Pick<Established, 'end' | 'agentId' | 'sessionId' | 'hubId'> {
  /** From where both halves go on. */
  readonly answer: AttachAnswer;
  /** Makes the stream of the answer a carrier, at the gateway. Call it once. A hub passes on `end` instead, with its marks. */
  readonly carrier: () => Carrier;
}

/** Rejects with a DialError, caused by an AttachRefused if the agent has refused. The tunnel then stays as it was. */
export type Attach = (request: AttachRequest) => Promise<Attached>;

/** What a gateway asks of a hub, and a hub of an agent: over a link, or by a call if both are in one process. */
export interface Link {
  readonly dial: Dial;
  readonly attach: Attach;
}
