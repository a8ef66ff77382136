import type { DialRequest, TunnelEnd } from '../dial/dial.ts';
import type { AttachAnswer, AttachRequest, Carrier } from './carrier.ts';

/** What an agent answers to a dial whose tunnel can be resumed. */
export interface ResumeGrant {
  /** The agent's process: 16 hexadecimal digits. No other process knows the tunnel. */
  readonly instance: string;
  /** Needed to attach: 32 hexadecimal digits. */
  readonly secret: string;
}

/** An attach as it travels. The tunnel is named by the dial that began it. */
export interface AttachClaim extends AttachRequest {
  readonly secret: string;
}

/** The part of an answer that is about resuming. */
export interface ResumeAnswer {
  /** In the answer to a dial. */
  readonly grant?: ResumeGrant;
  /** In the answer to an attach. */
  readonly attached?: AttachAnswer;
}

/** Makes the stream of an answer a carrier. Call it once. */
export type OpenCarrier = () => Carrier;

/** Says in a dial that its tunnel should be resumable (docs/RESUME.md). */
export interface ResumeRequest {
  /** Set if this is not a new dial but goes on with an existing tunnel. */
  readonly attach?: AttachClaim;
  /** Whether the dialling side of the link is the gateway, and not a hub. */
  readonly direct?: boolean;
  /** The gateway's process: 16 hexadecimal digits. */
  readonly gateway?: string | undefined;
  /** Set at a gateway: takes over the stream of an answer that can be resumed. Unset at a hub, which only passes on bytes and marks. */
  readonly carry?: (answer: ResumeAnswer, open: OpenCarrier, request: DialRequest) => TunnelEnd;
}
