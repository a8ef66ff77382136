import { encodeDataHead, encodePacket, type Packet } from '@isthmus/proto';
import { codeName, ErrorCode } from '../http2/frames.ts';
import type { Field } from '../http2/heads.ts';
import { hpackEncode } from '../http2/hpack.ts';
import type { HeadKind, Http2Stream, StreamHandler } from '../http2/stream.ts';
import { PacketReader, PREFIX, writePrefix } from './messages.ts';
import { Metadata, OK_TRAILERS, StatusError, type StatusName, statusFields, statusIn } from './status.ts';

/** A stream of packets in both directions, whichever library carries it. */
export interface PacketChannel {
  /** The peer, for logs. */
  readonly remote: string;
  /** Always takes the packet. Returns false to ask the sender to wait for `drain`. Does nothing after the end. */
  send(packet: Packet): boolean;
  /** Starts to deliver packets, including those that have arrived. Called once. */
  start(sink: PacketSink): void;
  /** Stops the peer from sending as many bytes as these again, beyond what may be withheld, until they are released. Still delivers what arrives. */
  withhold(bytes: number): void;
  release(bytes: number): void;
  /** Whether so much is withheld that the peer can send almost nothing. */
  readonly heldUp: boolean;
  /** Whether it has ended, for any reason. */
  readonly over: boolean;
  /** Sends nothing more. What was sent still arrives. */
  end(): void;
  /** Ends both directions at once. Tells the peer why if it still listens. */
  destroy(reason: Error): void;
}

export interface PacketSink {
  packet(packet: Packet): void;
  /** The channel takes packets again. */
  drain(): void;
  /** The last call. Without an error, the stream ended in good order. */
  closed(error?: StatusError): void;
}

const RESPONSE: readonly Field[] = [
  [':status', '200'],
  ['content-type', 'application/grpc'],
];
const RESPONSE_HEAD = hpackEncode(RESPONSE);

/** What a server knows of the other side of a connection. */
export interface CallPeer {
  /** For logs: `host:port`. */
  readonly remote: string;
}

/** ANP's packets both ways on one stream, at either side of it. Reads nothing until it is started. */
abstract class PacketCall implements PacketChannel, StreamHandler {
  abstract readonly remote: string;
  readonly stream: Http2Stream;
  /** Whether it has ended, for any reason. Its own methods alone change it. */
  over = false;
  /** Why, unless it ended in good order. */
  #error: StatusError | undefined;
  /** Sends nothing more than what waits. */
  protected ended = false;
  readonly #packets: PacketReader;
  #sink: PacketSink | undefined;
  #paused = true;
  /** Received bytes for which the peer has not yet got new window. */
  #owed = 0;
  /** Those of them that nobody has read yet, beyond those that count as read. */
  #withheld: number;
  /** The other side has sent its last message. */
  #remoteEnded = false;
  /** The sink waits for `drain`. */
  #isFull = false;
  #reset: NodeJS.Timeout | undefined;

  /** @param freeBytes how many withheld bytes count as read */
  constructor(stream: Http2Stream, freeBytes = 0) {
    this.stream = stream;
    this.#withheld = -freeBytes;
    this.#packets = new PacketReader(stream.config);
    stream.handler = this;
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    if (this.over) sink.closed(this.#error);
    else this.resume();
  }

  send(packet: Packet): boolean {
    if (this.ended || this.over) return true;
    if (packet.type === 'DATA' && packet.data.length > this.stream.config.copiedBytes) {
      const head = encodeDataHead(packet, PREFIX);
      writePrefix(head, head.length - PREFIX + packet.data.length);
      this.stream.write(head);
      this.stream.write(packet.data as Buffer);
    } else {
      const message = encodePacket(packet, PREFIX);
      writePrefix(message, message.length - PREFIX);
      this.stream.write(message);
    }
    this.#isFull = !this.stream.leavesSoon;
    return !this.#isFull;
  }

  /** Stops reading, and thereby the peer. Only for a stream with one tunnel, because it stops every tunnel of the stream. */
  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused || this.over || !this.#sink) return;
    this.#paused = false;
    this.#deliver();
    this.#give();
  }

  withhold(bytes: number): void {
    this.#withheld += bytes;
  }

  release(bytes: number): void {
    this.#withheld -= bytes;
    if (!this.over) this.#give(this.stream.config.heldBackBytes);
  }

  get heldUp(): boolean {
    return !this.over && this.#withheld > 0 && this.stream.short;
  }

  abstract end(): void;
  abstract destroy(reason: Error): void;
  /** What came breaks the rules. */
  protected abstract fail(error: StatusError): void;
  /** All that the other side had to send was delivered. @param whole whether its last message was complete */
  protected abstract finish(whole: boolean): void;

  // Calls of the stream.

  abstract onHeaders(fields: readonly Field[], kind: HeadKind): void;

  onClose(_code: number | undefined, _reason: Error | undefined): void {
    this.stream.release();
    clearTimeout(this.#reset);
  }

  onData(piece: Buffer): void {
    if (this.over) {
      // Read and drop, or its connection would wait for it.
      this.stream.consume(piece.length);
      return;
    }
    this.#packets.add(piece);
    this.#owed += piece.length;
    if (!this.#paused) {
      this.#deliver();
      this.#give();
    }
    this.#packets.keep();
  }

  onWritable(): void {
    if (!this.#isFull || this.over) return;
    this.#isFull = false;
    this.#sink?.drain();
  }

  /** ANP's peers treat the end of one direction as the end of both. */
  onEnd(): void {
    this.#remoteEnded = true;
    if (!this.#paused) this.#deliver();
  }

  /**
   * Lets the peer send as many bytes as were taken. Others count against its window: those of a paused reader, of an unfinished message, or
   * withheld for a slow reader.
   */
  #give(least?: number): void {
    const heldBack = Math.max(0, this.#withheld);
    const owed = Math.min(heldBack + this.#packets.length, this.#owed);
    const taken = this.#owed - owed;
    this.#owed = owed;
    if (taken > 0) this.stream.consume(taken, least ?? (heldBack > 0 ? this.stream.config.heldBackBytes : undefined));
  }

  #deliver(): void {
    try {
      while (!this.#paused && !this.over) {
        const packet = this.#packets.nextPacket();
        if (!packet) break;
        this.#sink?.packet(packet);
      }
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      this.fail(error);
      return;
    }
    if (this.#remoteEnded && !this.#paused && !this.over) this.finish(this.#packets.empty);
  }

  /** Resets the stream if the other side has not read by then what waits to be sent. */
  protected resetAfter(ms: number): void {
    if (this.stream.pending === 0) return;
    const reset = this.stream.guarded(() => this.stream.reset(ErrorCode.CANCEL));
    this.#reset = setTimeout(reset, ms);
  }

  protected close(error?: StatusError): void {
    if (this.over) return;
    this.over = true;
    this.#error = error;
    this.#sink?.closed(error);
  }
}

const AMID_MESSAGE = 'the stream ended in the middle of a message';

/** A call at our server. */
export class ServerCall<Peer extends CallPeer = CallPeer> extends PacketCall {
  readonly metadata: Metadata;
  readonly peer: Peer;
  #responded = false;
  /** Why it fails, before its sink hears of it. */
  #failure: StatusError | undefined;
  #abort: AbortController | undefined;
  #deadline: NodeJS.Timeout | undefined;

  /** @param timeout how long the caller allows it to take, in milliseconds */
  constructor(stream: Http2Stream, metadata: Metadata, peer: Peer, timeout?: number) {
    super(stream);
    this.metadata = metadata;
    this.peer = peer;
    if (timeout === undefined) return;
    const late = () => this.fail(new StatusError('DeadlineExceeded', 'deadline exceeded'));
    this.#deadline = setTimeout(stream.guarded(late), timeout).unref();
  }

  get remote(): string {
    return this.peer.remote;
  }

  /** Aborts when the call is over. Created on demand, because most calls need none. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.over) this.#abort.abort();
    return this.#abort.signal;
  }

  /** Sends initial metadata ahead of the first packet. */
  respond(metadata: readonly Field[]): void {
    if (this.#responded || this.over) return;
    this.#responded = true;
    this.stream.answer(metadata.length > 0 ? hpackEncode([...RESPONSE, ...metadata]) : RESPONSE_HEAD);
  }

  override send(packet: Packet): boolean {
    if (!this.#responded && !this.ended) this.respond([]);
    return super.send(packet);
  }

  end(): void {
    if (this.ended || this.over) return;
    this.ended = true;
    if (this.#responded) this.stream.end(OK_TRAILERS);
    else this.stream.answer(hpackEncode([...RESPONSE, ...statusFields()]), true);
  }

  destroy(reason: Error): void {
    this.fail(new StatusError('Aborted', reason.message, { cause: reason }));
  }

  /** Ends the call with an error. The caller gets it after what was sent, if it still reads. */
  fail(error: StatusError): void {
    if (this.over) return;
    this.ended = true;
    // First, because the stream may close as soon as its end is sent.
    this.#failure = error;
    const fields = statusFields(error);
    if (!this.#responded) this.stream.answer(hpackEncode([...RESPONSE, ...fields]), true);
    else {
      this.stream.end(hpackEncode(fields));
      this.resetAfter(this.stream.config.callResetMs);
    }
    this.close(error);
  }

  /** Callers have nothing to say in trailers. */
  onHeaders(): void {}

  override onClose(code: number | undefined, reason: Error | undefined): void {
    super.onClose(code, reason);
    const orderly = code === undefined || this.ended;
    const text = reason?.message ?? 'stream was cancelled';
    this.close(this.#failure ?? (orderly ? undefined : new StatusError('Canceled', text, { cause: reason })));
  }

  protected finish(whole: boolean): void {
    if (!whole) this.fail(new StatusError('Internal', AMID_MESSAGE));
    this.end();
    this.resetAfter(this.stream.config.flushMs);
    this.close();
  }

  protected override close(error?: StatusError): void {
    if (this.over) return;
    clearTimeout(this.#deadline);
    super.close(error);
    this.#abort?.abort();
  }
}

/** What the resets of a call mean (gRPC over HTTP/2, "Errors"). Others: Internal. */
const RESETS: Readonly<Record<number, StatusName>> = {
  [ErrorCode.REFUSED_STREAM]: 'Unavailable',
  [ErrorCode.CANCEL]: 'Canceled',
  [ErrorCode.ENHANCE_YOUR_CALM]: 'ResourceExhausted',
  [ErrorCode.INADEQUATE_SECURITY]: 'PermissionDenied',
};

/** A call of ours at another server, whose request was sent. Without an answer in time, destroy it. */
export class ClientCall extends PacketCall {
  readonly remote: string;
  readonly #answered = Promise.withResolvers<Metadata>();
  /** Resolves with the server's metadata. Rejects with a StatusError. */
  readonly answered = this.#answered.promise;
  readonly #left: () => void;
  /** What the server says of the call's end, once it has said it. */
  #status: ReturnType<typeof statusIn>;

  /**
   * @param freeBytes how many withheld bytes count as read
   * @param left called once nothing more of the call comes or leaves
   */
  constructor(stream: Http2Stream, remote: string, freeBytes: number, left: () => void) {
    super(stream, freeBytes);
    this.remote = remote;
    this.#left = left;
    this.answered.catch(() => {});
  }

  end(): void {
    if (this.ended || this.over) return;
    this.ended = true;
    this.stream.end();
  }

  destroy(reason: Error): void {
    this.ended = true;
    this.close(reason instanceof StatusError ? reason : new StatusError('Canceled', reason.message, { cause: reason }));
    this.stream.reset(ErrorCode.CANCEL);
  }

  protected fail(error: StatusError): void {
    this.destroy(error);
  }

  onHeaders(fields: readonly Field[], kind: HeadKind): void {
    if (kind === 'informational') return;
    const metadata = new Metadata(fields);
    this.#status = statusIn(metadata);
    if (!this.#status) this.#answered.resolve(metadata);
    // Nothing has come that must be read first.
    else if (kind === 'response') this.finish(true);
  }

  override onClose(code: number | undefined, reason: Error | undefined): void {
    super.onClose(code, reason);
    // A server that has said how the call ends may reset what is left of it.
    if (this.#status) this.finish(true);
    else if (reason) this.close(new StatusError('Unavailable', reason.message, { cause: reason }));
    else if (code !== undefined)
      this.close(new StatusError(RESETS[code] ?? 'Internal', `the server reset the call with ${codeName(code)}`));
    this.#left();
  }

  protected finish(whole: boolean): void {
    const unsaid = this.#status ? undefined : 'the call ended without a status';
    const amid = unsaid ?? (whole ? undefined : AMID_MESSAGE);
    const error = this.#status?.error ?? (amid === undefined ? undefined : new StatusError('Internal', amid));
    this.end();
    this.resetAfter(this.stream.config.flushMs);
    this.close(error);
  }

  protected override close(error?: StatusError): void {
    super.close(error);
    this.#answered.reject(error ?? new StatusError('Unknown', 'the call ended without an answer'));
  }
}
