import { type Guarded, Waiting } from '@isthmus/runtime';
import type { Config } from '../defaults.ts';
import { MarkAllowance } from './floods.ts';
import { dataHead, ErrorCode, Flag, FrameType, headersFrames, lastMarkFrame, MAX_WINDOW } from './frames.ts';
import type { Field } from './heads.ts';
import type { Incoming } from './incoming.ts';
import type { BulkWriter, Output, Sender, SendGroup } from './output.ts';
import { closings } from './ticks.ts';

/** What a header section is that comes after the request's. */
export type HeadKind = 'informational' | 'response' | 'trailers';

/** The user of a stream: on links a tunnel's end or half, or a Duplex; packets for gRPC. The stream calls it, and it calls the stream. */
export interface StreamHandler {
  /** A header section came after the request's. Unset: it is dropped. */
  onHeaders?(fields: readonly Field[], kind: HeadKind): void;
  /** Bytes came. They count as read once `Http2Stream.consume` was called for them. */
  onData(bytes: Buffer): void;
  /** A mark came. Unset: it is dropped, like any frame of an unknown type. */
  onMark?(payload: Buffer): void;
  /** The other side sends nothing more. */
  onEnd(): void;
  /** Everything written has left, including the end if there is one. */
  onWritable(): void;
  /**
   * Called last, and once. After a reset by the other side perhaps some ticks late, if many ended at once: the stream is closed before.
   * @param code of the reset by either side; undefined if both sides have ended
   * @param reason why the connection ended, if that is what ended the stream
   */
  onClose(code: number | undefined, reason: Error | undefined): void;
}

/** Our direction of a stream, and the end of the stream. `Incoming` has the other side's direction. */
type StreamState =
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

const OPEN: StreamState = { is: 'open' };
const ENDED: StreamState = { is: 'ended' };
const BOTH_ENDED: StreamState = { is: 'closed' };

/** The table that a stream is in. */
export interface StreamOwner {
  readonly output: Output;
  /** Whether a stream is over once this side has ended it. Nobody needs what the other side still sends then (RFC 9113 section 8.1). */
  readonly abandonsRequests: boolean;
  /** What each stream may bring beyond its window, in bytes. */
  readonly excess: number;
  /** The other side broke the stream's rules, which resets it. */
  streamBroken(): void;
  /** No further frame of the stream arrives or leaves. @param byPeer whether the other side has ended its direction or reset the stream */
  streamClosed(stream: Http2Stream, byPeer: boolean): void;
}

/** What a stream may send and be sent. */
interface StreamLimits {
  readonly incoming: Incoming;
  /** What it may send before the other side gives more, in bytes. */
  readonly sendWindow: number;
  readonly group: SendGroup;
}

/** Marks of a stream that need no allowance: a tunnel has some three. They count once there are more. */
const MARKS_UNCOUNTED = 16;

/** The handler of a stream that nobody serves. */
const NOBODY: StreamHandler = { onData() {}, onEnd() {}, onWritable() {}, onClose() {} };

/** One stream of a connection, for links and for gRPC: its frames, its windows, and the bytes that wait to be sent. Its handler uses the bytes. */
export class Http2Stream implements Sender {
  readonly id: number;
  readonly group: SendGroup;
  /** Set when the stream is opened. */
  handler: StreamHandler = NOBODY;
  /** Whether a request was answered. */
  answered = false;
  offered = false;
  readonly #owner: StreamOwner;
  readonly #output: Output;
  readonly #incoming: Incoming;
  /** Below 0 when the other side's initial window has shrunk since. */
  #sendWindow: number;
  #state: StreamState = OPEN;
  /** Bytes that were written and have not left yet. Its own methods alone change it. */
  pending = 0;
  /** The piece that leaves next, how many of its bytes have left, and the pieces behind it, which wait for longer. */
  #first: Buffer | undefined;
  #firstSent = 0;
  #rest: Waiting | undefined;
  /** Marks that came. Few streams see more than some, which need no allowance. */
  #marked = 0;
  #marks: MarkAllowance | undefined;

  constructor(id: number, owner: StreamOwner, { incoming, sendWindow, group }: StreamLimits) {
    this.id = id;
    this.#owner = owner;
    this.#output = owner.output;
    this.#incoming = incoming;
    this.#sendWindow = sendWindow;
    this.group = group;
  }

  /** Whether our end has been sent, or never will be. */
  get localEnded(): boolean {
    return this.#state.is === 'ended' || this.closed;
  }

  /** Whether no further frame will arrive or leave. */
  get closed(): boolean {
    return this.#state.is === 'closed';
  }

  /** The code with which either side has reset the stream. */
  get code(): number | undefined {
    return this.#state.is === 'closed' ? this.#state.code : undefined;
  }

  /** Why the connection ended, if that is what ended the stream. */
  get reason(): Error | undefined {
    return this.#state.is === 'closed' ? this.#state.reason : undefined;
  }

  /** Whether all that the other side had to send has arrived. */
  get complete(): boolean {
    return this.#incoming.state === 'ended';
  }

  /** The connection's. */
  get config(): Config {
    return this.#output.config;
  }

  /** Wraps callbacks of timers and promises: an error that they throw ends the connection. */
  get guarded(): Guarded {
    return this.#output.guarded;
  }

  // What this side sends.

  /** Sends a header section: a request, or an informational answer. @param end whether our direction ends with it */
  headers(block: Buffer, end = false): void {
    const output = this.#output;
    if (this.#state.is === 'closed') return;
    if (block.length <= output.maxFrame) {
      output.head(FrameType.HEADERS, Flag.END_HEADERS | (end ? Flag.END_STREAM : 0), this.id, block.length);
      output.add(block);
    } else for (const frame of headersFrames(this.id, block, end, output.maxFrame)) output.add(frame);
    output.schedule();
  }

  /** @param end whether the answer is complete with it */
  answer(block: Buffer, end = false): void {
    if (this.#state.is !== 'open') return;
    this.answered = true;
    if (end) this.#sendEnd(block);
    else this.headers(block);
  }

  /** Queues the bytes, however many wait already. Drops them after the end. */
  write(piece: Buffer): void {
    if (this.#state.is !== 'open' || piece.length === 0) return;
    this.pending += piece.length;
    if (!this.#first) this.#first = piece;
    else {
      this.#rest ??= new Waiting();
      this.#rest.push(piece);
    }
    if (!this.offered && this.#sendWindow > 0) this.#output.offer(this);
  }

  /** Sends a mark, ahead of the bytes that wait here. */
  mark(payload: Uint8Array): void {
    if (this.#state.is === 'closed') return;
    this.#output.head(FrameType.MARK, 0, this.id, payload.length);
    this.#output.add(payload);
    this.#output.schedule();
  }

  /** Whether the written bytes leave soon, because the windows and the socket have room for them. If not, wait for `onWritable`. */
  get leavesSoon(): boolean {
    const { pending } = this;
    return (
      pending === 0 ||
      (pending <= this.#output.config.queueAheadBytes && pending <= this.#sendWindow && this.#output.hasRoom)
    );
  }

  /** Calls `writer.writeMore` when it is the stream's turn. */
  awaitTurn(writer: BulkWriter): void {
    this.#output.awaitTurn(writer, this.group);
  }

  /** Ends our direction after the written bytes. */
  end(trailers?: Buffer): void {
    if (this.#state.is !== 'open') return;
    if (this.pending === 0) this.#sendEnd(trailers);
    else this.#become({ is: 'ending', trailers });
  }

  /** As `end`, for an end that nobody waits for. If no bytes are queued, it leaves with other frames, or a little later. */
  endLate(mark?: Uint8Array): void {
    if (this.#state.is !== 'open') return;
    if (this.pending > 0) {
      if (mark) this.mark(mark);
      this.end();
      return;
    }
    this.#output.lateFrame(mark ? lastMarkFrame(this.id, mark) : dataHead(this.id, 0, true));
    this.#endSent();
  }

  /** Ends both directions at once. @param reason passed to the handler */
  reset(code: number, reason?: Error): void {
    if (this.closed) return;
    this.#word(FrameType.RST_STREAM, code);
    this.#become({ is: 'closed', code, ...(reason && { reason }) });
  }

  get sendable(): boolean {
    return this.pending > 0 && this.#sendWindow > 0;
  }

  sendFrame(output: Output, limit: number): number {
    const length = Math.min(limit, this.pending, this.#sendWindow);
    this.pending -= length;
    this.#sendWindow -= length;
    this.#marks?.earnForData();
    output.head(FrameType.DATA, 0, this.id, length);
    for (let left = length; left > 0; ) {
      const piece = this.#first as Buffer;
      const from = this.#firstSent;
      const to = Math.min(from + left, piece.length);
      const isWhole = from === 0 && to === piece.length;
      output.add(isWhole ? piece : piece.subarray(from, to));
      left -= to - from;
      this.#firstSent = to;
      if (to < piece.length) break;
      this.#first = this.#rest?.shift() as Buffer | undefined;
      this.#firstSent = 0;
    }
    if (this.pending > 0) return length;
    if (this.#state.is === 'ending') this.#sendEnd(this.#state.trailers);
    else this.handler.onWritable();
    return length;
  }

  /** Sends a frame whose payload is one number. */
  #word(type: number, word: number): void {
    this.#output.head(type, 0, this.id, 4, word);
    this.#output.schedule();
  }

  /** @param section an answer or trailers that end the stream */
  #sendEnd(section: Buffer | undefined): void {
    if (section) this.headers(section, true);
    else {
      this.#output.head(FrameType.DATA, Flag.END_STREAM, this.id, 0);
      this.#output.schedule();
    }
    this.#endSent();
  }

  /** Our end has been sent. */
  #endSent(): void {
    this.#become(ENDED);
    this.handler.onWritable();
    if (this.#incoming.state === 'ended') this.#become(BOTH_ENDED);
    else if (this.#owner.abandonsRequests && !this.closed) {
      this.#word(FrameType.RST_STREAM, ErrorCode.NO_ERROR);
      this.#become(BOTH_ENDED);
    }
  }

  // What this side has read.

  /** See `Incoming.short`. */
  get short(): boolean {
    return this.#incoming.short;
  }

  /**
   * Counts bytes as read. The other side may send as many again, and more if the window limits it.
   * @param least see `Incoming.consume`
   * @returns whether the other side is told now, with a WINDOW_UPDATE
   */
  consume(bytes: number, least?: number): boolean {
    const isClosed = this.#state.is === 'closed';
    const credit = this.#incoming.consume(bytes, isClosed ? Number.POSITIVE_INFINITY : least);
    if (credit === 0 || isClosed) return false;
    this.#word(FrameType.WINDOW_UPDATE, credit);
    return true;
  }

  /** See `Incoming.account`. */
  account(group: string): void {
    this.#incoming.account(group);
  }

  /** Lets the other side send this many bytes more before they are read. */
  widenReceiving(bytes: number): void {
    this.#incoming.widen(bytes);
  }

  /** Call once the stream is closed and everything received was read. A stream without a handler does so itself. */
  release(): void {
    this.#incoming.close();
  }

  // What the other side sends.

  /** @param fields unset if they are longer than they may be */
  receiveSection(fields: readonly Field[] | undefined, ends: boolean): void {
    const answers = this.#incoming.state === 'head';
    const fault = fields ? this.#incoming.section(fields, ends) : ErrorCode.ENHANCE_YOUR_CALM;
    if (fault !== undefined || !fields) this.#failed(fault);
    else {
      const kind = this.#incoming.state === 'head' ? 'informational' : 'response';
      this.handler.onHeaders?.(fields, answers ? kind : 'trailers');
      if (ends) this.receiveEnd();
    }
  }

  /** Bytes of a DATA frame came. @param ends whether the stream ends with them */
  receiveData(bytes: Buffer, padding: number, ends: boolean): void {
    const fault = this.#incoming.receive(bytes.length, padding, this.#owner.excess);
    if (fault !== undefined) {
      this.#failed(fault);
      return;
    }
    this.#marks?.earnForData();
    const credit = padding > 0 ? this.#incoming.skip(padding) : 0;
    if (credit > 0) this.#word(FrameType.WINDOW_UPDATE, credit);
    if (bytes.length > 0) this.handler.onData(bytes);
    if (ends) this.receiveEnd();
  }

  /** A mark ahead of the head has no meaning. */
  receiveMark(payload: Buffer): void {
    if (++this.#marked > MARKS_UNCOUNTED && !this.#allowsMark()) this.#failed(ErrorCode.ENHANCE_YOUR_CALM);
    else if (this.#incoming.state !== 'head') this.handler.onMark?.(payload);
  }

  #allowsMark(): boolean {
    this.#marks ??= new MarkAllowance(this.#output.config, MARKS_UNCOUNTED);
    return this.#marks.spend(1);
  }

  receiveEnd(): void {
    if (this.#state.is === 'closed' || this.#incoming.state === 'ended') return;
    const fault = this.#incoming.end();
    if (fault !== undefined) {
      this.#failed(fault);
      return;
    }
    this.handler.onEnd();
    if (this.#state.is === 'ended') this.#become(BOTH_ENDED);
  }

  receiveReset(code: number): void {
    this.#become({ is: 'closed', code, byPeer: true });
  }

  /** The other side enlarges the send window (section 6.9.1). */
  widen(bytes: number): void {
    if (bytes === 0) this.#failed(ErrorCode.PROTOCOL_ERROR);
    else if (!this.widenSending(bytes)) this.#failed(ErrorCode.FLOW_CONTROL_ERROR);
  }

  /** Widens the send window, or narrows it. @returns false if it would exceed the largest one */
  widenSending(bytes: number): boolean {
    this.#sendWindow += bytes;
    if (bytes > 0 && this.sendable) this.#output.offer(this);
    return this.#sendWindow <= MAX_WINDOW;
  }

  /** The connection is over. */
  lose(reason: Error): void {
    this.#become({ is: 'closed', code: ErrorCode.CANCEL, reason });
  }

  /** Resets the stream: the other side broke its rules. */
  #failed(code: number = ErrorCode.PROTOCOL_ERROR): void {
    if (this.closed) return;
    this.#owner.streamBroken();
    this.reset(code);
  }

  /** The only place that changes the state, which moves forward only. */
  #become(state: StreamState): void {
    if (this.#state.is === 'closed') return;
    this.#state = state;
    if (state.is !== 'closed') return;
    this.pending = 0;
    this.#first = undefined;
    this.#rest = undefined;
    this.#owner.streamClosed(this, state.byPeer === true || this.#incoming.state === 'ended');
    // Nobody has what came.
    if (this.handler === NOBODY) this.release();
    if (state.byPeer) closings.add(this.guarded(() => this.handler.onClose(state.code, state.reason)));
    else this.handler.onClose(state.code, state.reason);
  }
}
