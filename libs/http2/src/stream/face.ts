import type { Field } from '../section.ts';

/** What a header section is that comes after the request's. */
export type HeadKind = 'informational' | 'response' | 'trailers';

/** The user of a stream: a Duplex on links, packets for gRPC. The stream calls it, and it calls the stream. */
export interface StreamFace {
  /** A header section came after the request's. */
  onHeaders(fields: readonly Field[], kind: HeadKind): void;
  /** Bytes came. They count as read once `Http2Stream.consume` was called for them. */
  onData(bytes: Buffer): void;
  /** A mark came. Unset: it is dropped, like any frame of an unknown type. */
  onMark?(payload: Buffer): void;
  /** The other side sends nothing more. */
  onEnd(): void;
  /** Everything written has left, including the end if there is one. */
  onWritable(): void;
  /**
   * Called last, and once.
   * @param code of the reset by either side; undefined if both sides have ended
   * @param reason why the connection ended, if that is what ended the stream
   */
  onClose(code: number | undefined, reason: Error | undefined): void;
}
