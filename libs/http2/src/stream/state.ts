/** Our direction of a stream, and the end of the stream. `Incoming` has the other side's direction. */
export type StreamState =
  | { readonly is: 'open' }
  /** Our end leaves after what was written: with these trailers, or as END_STREAM on an empty frame. */
  | { readonly is: 'ending'; readonly trailers: Buffer | undefined }
  /** Our end has been sent. The other side may still send. */
  | { readonly is: 'ended' }
  /**
   * No further frame arrives or leaves. Without `code`, both sides have ended. With it, one side has reset the stream, or the connection
   * is over, which has a `reason` too.
   */
  | { readonly is: 'closed'; readonly code?: number; readonly reason?: Error; readonly byPeer?: boolean };

export const OPEN: StreamState = { is: 'open' };
export const ENDED: StreamState = { is: 'ended' };
export const BOTH_ENDED: StreamState = { is: 'closed' };
