import { type DuplexStream, ErrorCode, StreamError } from '@isthmus/http2';
import { PlaneEnded, type TunnelEnd } from '@isthmus/tunnel';

/** How a half of a link tells the other that the plane ended a tunnel, rather than its caller or destination. */
const BY_PLANE = ErrorCode.INTERNAL_ERROR;

/**
 * A tunnel's end on a link.
 * @param peer what is at the other side, for error texts
 */
export function endOfStream(stream: DuplexStream, peer: string): TunnelEnd {
  return {
    stream,
    halfOpen: true,
    abort: (reason) => stream.close(reason instanceof PlaneEnded ? BY_PLANE : ErrorCode.CANCEL),
    explain: (failure) =>
      failure instanceof StreamError && failure.code === BY_PLANE
        ? new PlaneEnded(`${peer} ended the tunnel: its log says why`, { cause: failure })
        : failure,
  };
}
