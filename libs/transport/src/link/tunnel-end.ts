import { type DuplexStream, ErrorCode, type Http2Stream, type PendingStream, StreamError } from '@isthmus/http2';
import { CUT_BY, HungUp, LinkReset, PlaneEnded, SessionLost, type TunnelEnd } from '@isthmus/tunnel';

/** Code of a reset that says: the plane cut this tunnel, and not its caller or destination. What cut it is not known, or was the path. */
const BY_PLANE = ErrorCode.INTERNAL_ERROR;

/** The same, and what cut it: this code and the next ones stand for the entries of CUT_BY. */
const CUT = 0x49_53_01_00;

/**
 * Code of a reset that says: the way to the tunnel's other end is lost, and nobody has ended the tunnel. It and the next two are our own
 * codes, for tunnels that can be resumed, so both sides know them (RFC 9113 section 7).
 */
export const LOST = 0x49_53_00_01;
/** The same, because the other end's process closed its connection. */
export const HUNG_UP = 0x49_53_00_02;
/** The same, because the other end's connection was reset. */
export const RESET = 0x49_53_00_03;

/** The code of a reset that ends a tunnel for both its ends. */
export function endingCode(reason: Error): number {
  if (!(reason instanceof PlaneEnded)) return ErrorCode.CANCEL;
  return reason.by === 'path' ? BY_PLANE : CUT + CUT_BY.indexOf(reason.by);
}

/** Returns the plane's cut that a reset tells of; undefined if its code says something else. @param peer who sent it, for the error's text */
export function cutOf(code: number | undefined, peer: string, cause?: Error): PlaneEnded | undefined {
  const by = code === BY_PLANE ? 'path' : CUT_BY[(code ?? 0) - CUT];
  return by && new PlaneEnded(`${peer} ended the tunnel: its log says why`, { by, cause });
}

/** Makes a stream without a half a Duplex. @param closed called once it is over, and its last byte was read */
export function asDuplex(pending: PendingStream, closed: (stream: Http2Stream) => void): DuplexStream {
  const { stream } = pending;
  const duplex = pending.asDuplex();
  // The splice has its own listener. This one serves before and after it.
  return duplex.on('error', ignore).on('close', () => closed(stream));
}

function ignore(): void {}

/**
 * A tunnel's end on a link.
 * @param peer what is at the other side, for error texts
 * @param resumable whether the tunnel can be resumed by its two ends, which are elsewhere
 */
export function endOfStream(stream: DuplexStream, peer: string, resumable = false): TunnelEnd {
  return {
    stream,
    halfOpen: true,
    abort: (reason) => stream.close(codeOf(reason, resumable)),
    explain(failure) {
      const code = failure instanceof StreamError ? failure.code : undefined;
      const because = { cause: failure };
      if (code === LOST) return new SessionLost(`${peer} has lost the tunnel`, because);
      if (code === HUNG_UP) return new HungUp(`${peer} has lost the tunnel: its other end hung up`, because);
      if (code === RESET) return new LinkReset(`${peer} has lost the tunnel: its other end was cut off`, because);
      return cutOf(code, peer, failure) ?? failure;
    },
    ...(resumable && { marks: stream }),
  };
}

function codeOf(reason: Error, resumable: boolean): number {
  if (resumable && reason instanceof HungUp) return HUNG_UP;
  if (resumable && reason instanceof LinkReset) return RESET;
  if (resumable && reason instanceof SessionLost) return LOST;
  return endingCode(reason);
}
