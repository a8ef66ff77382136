import { Duplex } from 'node:stream';
import { ConnectionError, codeName, ErrorCode, StreamError } from './codes.ts';
import { pushCompact } from './compact.ts';
import { dataHead } from './frames.ts';
import { headOf, type OutgoingHead } from './head.ts';
import type { Incoming } from './incoming.ts';
import { type Done, Outgoing } from './outgoing.ts';
import type { ReceiveWindow } from './receive-window.ts';
import type { Field } from './section.ts';
import type { SendWindow } from './send-window.ts';
import type { Sender, Sink } from './sending.ts';
import type { StreamLimits, StreamOwner } from './stream-owner.ts';

/** Bytes that may wait here to be sent before the writer has to pause: two reads of a socket. */
const SEND_AHEAD = 128 * 1024;

/** A write of at least this length counts as bulk, in bytes. A shorter one does not wait for others. */
const BULK_WRITE = 16 * 1024;

/**
 * One HTTP/2 stream. Its two directions end independently; `destroy` and `close` reset it. Once both have ended, received bytes can
 * still be read to the end, even after the session has ended.
 *
 * Events in addition to a Duplex's, at the client: `headers` (an informational head), `response` and `trailers`, each with the Head.
 */
export class Http2Stream extends Duplex implements Sender {
  readonly id: number;
  /** Why it was reset, by either side. */
  rstCode: number = ErrorCode.NO_ERROR;
  headersSent = false;
  offered = false;
  readonly #owner: StreamOwner;
  readonly #incoming: Incoming;
  readonly #window: ReceiveWindow;
  readonly sendWindow: SendWindow;
  /** Received bytes beyond what the reader wants now. */
  #held = 0;
  #remoteReset = false;
  #localEnded = false;
  #wireClosed = false;
  readonly #outgoing = new Outgoing();
  #final: Done | undefined;

  constructor(id: number, owner: StreamOwner, { incoming, window, sendWindow }: StreamLimits) {
    // Bytes count as read only once the reader has them, so the window bounds what is buffered.
    super({ readableHighWaterMark: 1, writableHighWaterMark: SEND_AHEAD });
    this.id = id;
    this.#owner = owner;
    this.#incoming = incoming;
    this.#window = window;
    this.sendWindow = sendWindow;
  }

  /** Whether no further frame will arrive or leave: both sides have ended, or one has reset. */
  get wireClosed(): boolean {
    return this.#wireClosed;
  }

  /** Whether the other side has ended its direction or reset the stream. */
  get remoteEnded(): boolean {
    return this.#incoming.ended || this.#remoteReset;
  }

  /** The serving side's answer. */
  respond(head: OutgoingHead, { endStream = false } = {}): void {
    this.headersSent = true;
    this.#owner.head(this, head, endStream);
    if (!endStream) return;
    this.#endLocal();
    this.end();
  }

  /** An informational head, before the answer. */
  additionalHeaders(head: OutgoingHead): void {
    this.#owner.head(this, head, false);
  }

  /** Ends both directions at once: nothing more is sent, unread bytes are lost, and the other side gets a reset unless it has ended. */
  close(code: number = ErrorCode.CANCEL): void {
    if (this.destroyed) return;
    if (!this.#wireClosed) this.rstCode = code;
    this.destroy(failure(this.rstCode));
  }

  // What the session tells.

  receiveSection(fields: readonly Field[], ends: boolean): void {
    const head = headOf(fields);
    const answers = !this.#incoming.begun;
    if (this.#failed(this.#incoming.section(fields, ends))) return;
    if (!answers) this.emit('trailers', head);
    else this.emit(this.#incoming.begun ? 'response' : 'headers', head);
    if (ends) this.#endRemote();
  }

  /** @throws ConnectionError if the other side ignores the window */
  receiveData(bytes: Buffer, padding: number, ends: boolean): void {
    if (this.#failed(this.#incoming.data(bytes.length))) return;
    if (!this.#window.receive(bytes.length + padding))
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, `stream ${this.id}: more than its window`);
    if (padding > 0) this.#credit(this.#window.skip(padding));
    this.#held += bytes.length;
    if (bytes.length > 0 && pushCompact(this, bytes)) this.#consume();
    if (ends) this.receiveEnd();
  }

  receiveEnd(): void {
    if (!this.#incoming.ended && !this.#failed(this.#incoming.end())) this.#endRemote();
  }

  #endRemote(): void {
    this.push(null);
    this.#closeWire();
  }

  /** Ends the stream if the other side broke its rules. @param code the error, or undefined for none */
  #failed(code: number | undefined): boolean {
    if (code !== undefined) {
      this.#owner.broken();
      this.close(code);
    }
    return code !== undefined;
  }

  receiveReset(code: number): void {
    this.rstCode = code;
    this.#remoteReset = true;
    this.#overOnWire();
    // The whole response has arrived, and the other side wants no more of the request (section 8.1). The response can still be read.
    if (code === ErrorCode.NO_ERROR && this.#incoming.ended) {
      this.#outgoing.release();
      this.#final?.();
      this.end();
    } else this.destroy(failure(code));
  }

  /** The session has ended. */
  lose(reason: Error): void {
    this.#overOnWire();
    this.destroy(reason);
  }

  /** Enlarges the send window. */
  allow(bytes: number): void {
    if (bytes === 0) this.#failed(ErrorCode.PROTOCOL_ERROR);
    else if (!this.sendWindow.widen(bytes)) this.#failed(ErrorCode.FLOW_CONTROL_ERROR);
    else if (this.sendable) this.#owner.offer(this);
  }

  // What the session's sending side takes.

  get sendable(): boolean {
    if (this.#wireClosed) return false;
    return this.#outgoing.left > 0 ? this.sendWindow.size > 0 : this.#final !== undefined;
  }

  sendFrame(sink: Sink, limit: number): number {
    const { left } = this.#outgoing;
    if (left === 0) {
      sink.write(dataHead(this.id, 0, true));
      this.#endLocal();
      return 0;
    }
    const length = Math.min(limit, left, this.sendWindow.size);
    sink.write(dataHead(this.id, length, false));
    this.#outgoing.send(sink, length);
    this.sendWindow.sent(length);
    if (length === left) this.#sent();
    return length;
  }

  refill(): void {
    this.#outgoing.release();
  }

  /** A write has left completely. A bulk writer with nothing left here is asked for more on the stream's turn. */
  #sent(): void {
    const { length } = this.#outgoing;
    const isLast = this.writableLength === length && !this.writableEnded;
    if (isLast && length >= BULK_WRITE) this.#owner.emptied(this);
    else this.refill();
  }

  // What Duplex asks for.

  override _read(): void {
    this.#consume();
  }

  override _write(chunk: Buffer, _encoding: string, done: Done): void {
    this.#queue([chunk], done);
  }

  override _writev(writes: { chunk: Buffer }[], done: Done): void {
    this.#queue(
      writes.map(({ chunk }) => chunk),
      done,
    );
  }

  override _final(done: Done): void {
    if (this.#localEnded || this.#wireClosed) done();
    else {
      this.#final = done;
      this.#owner.offer(this);
    }
  }

  override _destroy(error: Error | null, done: Done): void {
    if (!this.#wireClosed) {
      this.rstCode ||= ErrorCode.CANCEL;
      this.#owner.reset(this, this.rstCode);
      this.#overOnWire();
    }
    this.#outgoing.release(error ?? new Error('stream was closed'));
    this.#window.close();
    done(error);
  }

  #queue(chunks: Buffer[], done: Done): void {
    if (this.#wireClosed) {
      done();
      return;
    }
    this.#outgoing.begin(chunks, done);
    if (this.sendable) this.#owner.offer(this);
  }

  #consume(): void {
    if (this.#held === 0) return;
    const credit = this.#window.consume(this.#held);
    this.#held = 0;
    this.#credit(credit);
  }

  #credit(credit: number): void {
    if (credit > 0 && !this.#incoming.ended && !this.#wireClosed) this.#owner.credit(this, credit);
  }

  #endLocal(): void {
    this.#localEnded = true;
    this.#final?.();
    this.#final = undefined;
    this.#closeWire();
  }

  /** Runs when both directions have ended. */
  #closeWire(): void {
    if (this.#localEnded && this.#incoming.ended) this.#overOnWire();
  }

  #overOnWire(): void {
    if (this.#wireClosed) return;
    this.#wireClosed = true;
    this.#outgoing.drop();
    this.#owner.ended(this);
  }
}

/** CANCEL is the normal way to abandon a stream. Its reader sees that the stream closed without an end. */
function failure(code: number): StreamError | undefined {
  if (code === ErrorCode.NO_ERROR || code === ErrorCode.CANCEL) return undefined;
  return new StreamError(code, `stream was reset with ${codeName(code)}`);
}
