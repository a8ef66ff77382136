import type { OutgoingHead } from './head.ts';
import type { Incoming } from './incoming.ts';
import type { ReceiveWindow } from './receive-window.ts';
import type { SendWindow } from './send-window.ts';
import type { Http2Stream } from './stream.ts';

/** What a stream needs of its session. */
export interface StreamOwner {
  /** The stream has something to send. */
  offer(stream: Http2Stream): void;
  /** The stream has sent bulk, and asks for more by `refill` when it is its turn. */
  emptied(stream: Http2Stream): void;
  head(stream: Http2Stream, head: OutgoingHead, endStream: boolean): void;
  credit(stream: Http2Stream, bytes: number): void;
  /** The other side broke the stream's rules, which resets it. */
  broken(): void;
  reset(stream: Http2Stream, code: number): void;
  /** No frame of the stream will come or go any more. */
  ended(stream: Http2Stream): void;
}

/** What a stream may send and be sent. */
export interface StreamLimits {
  readonly incoming: Incoming;
  readonly window: ReceiveWindow;
  readonly sendWindow: SendWindow;
}
