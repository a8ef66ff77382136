import type { DialRequest, TunnelEnd } from '../dial/dial.ts';
import type { AttachAnswer, AttachRequest, Carrier } from './carrier.ts';

/** What an agent says of a tunnel that may be resumed. */
export interface ResumeGrant {
  /** The agent's process: 16 hexadecimal digits. No other one knows the tunnel. */
  readonly instance: string;
  /** Who knows it may attach: 32 hexadecimal digits. */
  readonly secret: string;
}

/** An attach as it travels. The tunnel is named by the dial that began it. */
export interface AttachClaim extends AttachRequest {
  readonly secret: string;
}

/** What the answer says of resuming. */
export interface ResumeAnswer {
  /** Of a dial. */
  readonly grant?: ResumeGrant;
  /** Of an attach. */
  readonly attached?: AttachAnswer;
}

/** Makes the stream that an answer came on, or leaves on, a carrier. Call it once. */
export type OpenCarrier = () => Carrier;

/** Says in a dial that the tunnel may be resumed (docs/RESUME.md). */
export interface ResumeRequest {
  /** The dial is none: it goes on with a tunnel that there is. */
  readonly attach?: AttachClaim;
  /** Whether the dialling side of the link is the gateway, and not a hub. */
  readonly direct?: boolean;
  /** The gateway's process: 16 hexadecimal digits. */
  readonly gateway?: string;
  /** Takes the stream of an answer that can be resumed, at a gateway. Unset at a hub, which passes on bytes and marks. */
  readonly carry?: (answer: ResumeAnswer, open: OpenCarrier, request: DialRequest) => TunnelEnd;
}
