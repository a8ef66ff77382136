import { CUT_BY, HungUp, LinkReset, PlaneEnded, SessionLost } from '@isthmus/tunnel';
import { ErrorCode, type Http2Stream, StreamError } from '@isthmus/wire';

// What a reset of a tunnel's stream says of the tunnel.

/** What the carriers on a link need of it. */
export interface CarrierLink {
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** What is at the other ends of the tunnels. */
  readonly far: 'caller' | 'destination';
  /** Called once no further frame of a stream arrives or leaves. */
  readonly closed: (stream: Http2Stream) => void;
}

/** Code of a reset that says: the plane cut this tunnel, and not its caller or destination. What cut it is not known, or was the path. */
const BY_PLANE = ErrorCode.INTERNAL_ERROR;

/** The same, and what cut it: this code and the next ones stand for the entries of CUT_BY. */
const CUT = 0x49_53_01_00;

/**
 * Code of a reset that says: the way to the tunnel's other end is lost, and nobody has ended the tunnel. It and the next two are our own
 * codes, for tunnels that can be resumed, so both sides know them (RFC 9113 section 7).
 */
export const WAY_LOST = 0x49_53_00_01;
/** The same, because the other end's process closed its connection. */
const HUNG_UP = 0x49_53_00_02;
/** The same, because the other end's connection was reset. */
const RESET = 0x49_53_00_03;

/** The code of a reset that ends a tunnel for both its ends. */
export function endingCode(reason: Error): number {
  if (!(reason instanceof PlaneEnded)) return ErrorCode.CANCEL;
  return reason.by === 'path' ? BY_PLANE : CUT + CUT_BY.indexOf(reason.by);
}

/** Ends the tunnels of a link, also those that could be resumed elsewhere. */
export function cutStreams(streams: Iterable<Http2Stream>, cut: PlaneEnded): void {
  for (const stream of [...streams]) stream.reset(endingCode(cut), cut);
}

/** Returns what a reset says of its tunnel: that its way is lost, or that the plane cut it. Undefined for all other codes. */
export function meaningOf(code: number | undefined, { peer, far }: CarrierLink, cause?: Error): PlaneEnded | undefined {
  const lost = `${peer} has lost the other end of the tunnel`;
  if (code === WAY_LOST) return new SessionLost(lost, { cause });
  if (code === HUNG_UP)
    return new HungUp(`${lost}: it hung up`, { by: far === 'destination' ? 'agent' : 'gateway', cause });
  if (code === RESET) return new LinkReset(`${lost}: it was reset`, { cause });
  const by = code === BY_PLANE ? 'path' : CUT_BY[(code ?? 0) - CUT];
  return by && new PlaneEnded(`${peer} ended the tunnel: its log says why`, { by, cause });
}

/** What the failure of a stream means for its tunnel. */
export function explained(failure: Error, link: CarrierLink): Error {
  const code = failure instanceof StreamError ? failure.code : undefined;
  return meaningOf(code, link, failure) ?? failure;
}

/**
 * Returns what the loss of a link means for the tunnel if its other end is not at the other side: how a process between the two was lost says
 * nothing about it. Undefined for all other failures.
 */
export function ownLoss(failure: Error, halfAtPeer: boolean): SessionLost | undefined {
  const lost = failure instanceof HungUp || failure instanceof LinkReset;
  return lost && !halfAtPeer ? new SessionLost(failure.message, { cause: failure }) : undefined;
}

export function codeOfLoss(reason: SessionLost): number {
  if (reason instanceof HungUp) return HUNG_UP;
  return reason instanceof LinkReset ? RESET : WAY_LOST;
}
