import {
  dataHead,
  ErrorCode,
  type Field,
  headersFrames,
  type Incoming,
  ReceiveWindow,
  rstStreamFrame,
  type SendWindow,
  WindowBudget,
  windowUpdateFrame,
} from '@isthmus/http2';
import type { Guarded } from '@isthmus/runtime';
import type { Output } from './output.ts';

/** A caller's window grows no further, in bytes: callers are near, and what lies in more outlives young garbage. */
const LARGEST_WINDOW = 1024 * 1024;

/** What callers' windows may grow by together, in bytes: apart from the links', which theirs must not make small. */
const BUDGET = new WindowBudget(128 * 1024 * 1024);

/** Whoever serves a stream. */
export interface StreamReceiver {
  /** Bytes came. They count as read when `ServerStream.read` is told so. */
  data(piece: Buffer): void;
  /** The peer sends nothing more. */
  remoteEnd(): void;
  /** What was written has gone to the socket. */
  drain(): void;
  /**
   * Last of all.
   * @param code of the reset that ended it, or undefined after both sides' ends
   * @param reason why its connection ended, where that is what ended it and the peer did not just go away
   */
  close(code: number | undefined, reason: Error | undefined): void;
}

/** Whose stream it is. */
export interface StreamOwner {
  /** The peer broke the stream's rules, which resets it. */
  broken(): void;
  /** The stream is over. */
  ended(stream: ServerStream): void;
}

export interface StreamOptions {
  readonly output: Output;
  readonly owner: StreamOwner;
  readonly incoming: Incoming;
  /** What the peer may send ahead at first, in bytes. */
  readonly receiveWindow: number;
  readonly sendWindow: SendWindow;
}

/** A stream that a peer opened. Its window bounds what comes, and what is written waits here until the peer's allows it. */
export class ServerStream {
  readonly id: number;
  readonly #output: Output;
  readonly #owner: StreamOwner;
  #receiver: StreamReceiver | undefined;
  #closed = false;
  /** What the peer may send. */
  readonly #ahead: ReceiveWindow;
  /** What the peer may still say. */
  readonly #incoming: Incoming;
  #remoteReset = false;
  /** What we may still send. */
  readonly sendWindow: SendWindow;
  readonly #queue: Buffer[] = [];
  #queued = 0;
  /** Someone waits for `drain`. */
  #full = false;
  #trailers: Buffer | undefined;

  constructor(id: number, { output, owner, incoming, receiveWindow, sendWindow }: StreamOptions) {
    this.id = id;
    this.#output = output;
    this.#owner = owner;
    this.#incoming = incoming;
    this.#ahead = new ReceiveWindow(receiveWindow, () => 0, { budget: BUDGET, largest: LARGEST_WINDOW });
    this.sendWindow = sendWindow;
  }

  /** Whether the peer has ended its way, or reset the stream. */
  get remoteEnded(): boolean {
    return this.#incoming.ended || this.#remoteReset;
  }

  /** Guards what is called apart from what comes: a defect fails the connection. */
  get guarded(): Guarded {
    return this.#output.guarded;
  }

  /** To be called as the stream is accepted. */
  serve(receiver: StreamReceiver): void {
    this.#receiver = receiver;
  }

  /** Sends a header section; with `end` it is all there is. */
  head(fields: Buffer, end = false): void {
    if (this.#closed) return;
    for (const frame of headersFrames(this.id, fields, end, this.#output.maxFrame)) this.#output.add(frame);
    if (end) this.#finished();
  }

  /** Takes the bytes in any case; false asks to wait for `drain`. */
  write(...pieces: readonly Buffer[]): boolean {
    if (this.#closed || this.#trailers) return true;
    for (const piece of pieces) {
      this.#queue.push(piece);
      this.#queued += piece.length;
    }
    this.pump();
    this.#full = this.#queued > 0;
    return !this.#full;
  }

  /** What was written has yet to go to the socket. */
  get pending(): boolean {
    return this.#queued > 0;
  }

  /** Ends the stream behind what was written. */
  end(trailers: Buffer): void {
    if (this.#closed || this.#trailers) return;
    this.#trailers = trailers;
    this.pump();
  }

  /** Ends both ways at once. */
  reset(code: number): void {
    if (this.#closed) return;
    this.#output.add(rstStreamFrame(this.id, code));
    this.close(code);
  }

  /** Whether most of what the peer may send lies here unread. */
  get short(): boolean {
    return this.#ahead.short;
  }

  /**
   * So many bytes were read: the peer may send as many again, and more if it waits for them.
   * @param least see `ReceiveWindow.consume`
   */
  read(bytes: number, least?: number): void {
    if (this.#closed || this.#incoming.ended) return;
    this.#credit(this.#ahead.consume(bytes, least));
  }

  #credit(credit: number): void {
    if (credit > 0) this.#output.add(windowUpdateFrame(this.id, credit));
  }

  /** Sends what the windows and the socket allow. */
  pump(): void {
    while (this.#queued > 0) {
      if (this.#closed || this.sendWindow.size <= 0) return;
      const { room, maxFrame } = this.#output;
      if (room <= 0) {
        this.#output.wait(this);
        return;
      }
      this.#sendFrame(Math.min(this.#queued, this.sendWindow.size, room, maxFrame));
    }
    if (this.#trailers) this.head(this.#trailers, true);
    else if (this.#full) {
      this.#full = false;
      this.#receiver?.drain();
    }
  }

  #sendFrame(length: number): void {
    this.sendWindow.sent(length);
    this.#queued -= length;
    this.#output.add(dataHead(this.id, length, false), length);
    for (let left = length; left > 0; ) {
      const piece = this.#queue[0] as Buffer;
      const sent = piece.length > left ? piece.subarray(0, left) : piece;
      if (sent === piece) this.#queue.shift();
      else this.#queue[0] = piece.subarray(left);
      this.#output.add(sent);
      left -= sent.length;
    }
  }

  /** The peer may send so many bytes more ahead: it is told so by SETTINGS. */
  allow(bytes: number): void {
    this.#ahead.widen(bytes);
  }

  /** So many bytes of a DATA frame came. */
  expect(bytes: number, padding: number): void {
    if (this.#failed(this.#incoming.data(bytes))) return;
    if (!this.#ahead.receive(bytes + padding)) this.#failed(ErrorCode.FLOW_CONTROL_ERROR);
    else if (padding > 0) this.#credit(this.#ahead.skip(padding));
  }

  /** Bytes of a DATA frame came. */
  receive(piece: Buffer): void {
    if (!this.#closed) this.#receiver?.data(piece);
  }

  receiveSection(fields: readonly Field[], ends: boolean): void {
    if (!this.#failed(this.#incoming.section(fields, ends)) && ends) this.#receiver?.remoteEnd();
  }

  receiveEnd(): void {
    if (this.#closed || this.#incoming.ended || this.#failed(this.#incoming.end())) return;
    this.#receiver?.remoteEnd();
  }

  receiveReset(code: number): void {
    this.#remoteReset = true;
    this.close(code);
  }

  /** Ends the stream where the peer broke its rules. @param code of the error, if it is one */
  #failed(code: number | undefined): boolean {
    if (code !== undefined && !this.#closed) {
      this.#owner.broken();
      this.reset(code);
    }
    return code !== undefined;
  }

  /** The peer allows so many bytes more (section 6.9.1). */
  widen(bytes: number): void {
    if (bytes === 0) this.#failed(ErrorCode.PROTOCOL_ERROR);
    else if (!this.sendWindow.widen(bytes)) this.#failed(ErrorCode.FLOW_CONTROL_ERROR);
    else this.wake();
  }

  /** Its window may have grown. */
  wake(): void {
    if (this.#queued > 0) this.pump();
  }

  /** The stream is over, by a reset or with its connection if `code` is given. @param reason see `StreamReceiver.close` */
  close(code?: number, reason?: Error): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#queue.length = 0;
    this.#queued = 0;
    this.#output.leave(this);
    this.#ahead.close();
    this.#owner.ended(this);
    this.#receiver?.close(code, reason);
  }

  /** Our end is sent. What the peer may still send nobody reads: it is told so as Go's servers do (section 8.1). */
  #finished(): void {
    if (!this.#incoming.ended) this.#output.add(rstStreamFrame(this.id, ErrorCode.NO_ERROR));
    this.close();
  }
}
