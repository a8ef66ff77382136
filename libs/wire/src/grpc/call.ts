import { encodeDataHead, encodePacket, type Packet } from '@isthmus/proto';
import type { Guarded } from '@isthmus/runtime';
import { ErrorCode } from '../http2/frames.ts';
import type { Field } from '../http2/heads.ts';
import { hpackEncode } from '../http2/hpack.ts';
import type { Http2Stream, StreamFace } from '../http2/stream.ts';
import { PacketReader, PREFIX, writePrefix } from './messages.ts';
import { type Metadata, OK_TRAILERS, StatusError, statusFields } from './status.ts';

/** A stream of packets in both directions, whichever library carries it. */
export interface PacketChannel {
  /** The peer, for logs. */
  readonly remote: string;
  /** Always takes the packet. Returns false to ask the sender to wait for `drain`. Does nothing after the end. */
  send(packet: Packet): boolean;
  /** Starts to deliver packets, including those that have arrived. Called once. */
  start(sink: PacketSink): void;
  /** Stops reading, and thereby the peer. Only for a stream with one tunnel, because it stops every tunnel of the stream. */
  pause(): void;
  resume(): void;
  /** Stops the peer from sending as many bytes as these again, until they are freed. Still delivers what arrives. */
  hold(bytes: number): void;
  free(bytes: number): void;
  /** Whether so much is held that the peer can send almost nothing. */
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
  close(error?: ChannelError): void;
}

/** A channel that failed. */
export class ChannelError extends Error {
  override readonly name = 'ChannelError';
  /** Go's name of a gRPC status, such as `Unavailable`. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
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

/** A call at our server: ANP's packets both ways on one stream. Reads nothing until it is started. */
export class ServerCall<Peer extends CallPeer = CallPeer> implements PacketChannel, StreamFace {
  readonly metadata: Metadata;
  readonly peer: Peer;
  readonly #stream: Http2Stream;
  readonly #packets: PacketReader;
  #sink: PacketSink | undefined;
  #paused = true;
  /** Received bytes for which the peer has not yet got new window. */
  #owed = 0;
  /** Those of them that nobody has read yet. */
  #held = 0;
  /** The caller has sent its last message. */
  #remoteEnded = false;
  #responded = false;
  /** The sink waits for `drain`. */
  #isFull = false;
  /** Sends nothing more than what waits. */
  #ended = false;
  /** Why it fails, before its sink hears of it. */
  #failure: ChannelError | undefined;
  /** Set once it is over, with the error unless it ended in good order. */
  #closed: { readonly error: ChannelError | undefined } | undefined;
  #abort: AbortController | undefined;
  #reset: NodeJS.Timeout | undefined;
  #deadline: NodeJS.Timeout | undefined;

  /** @param timeout how long the caller allows it to take, in milliseconds */
  constructor(stream: Http2Stream, metadata: Metadata, peer: Peer, timeout?: number) {
    this.#stream = stream;
    this.#packets = new PacketReader(stream.config);
    this.metadata = metadata;
    this.peer = peer;
    stream.face = this;
    if (timeout === undefined) return;
    const late = () => this.fail(new StatusError('DeadlineExceeded', 'deadline exceeded'));
    this.#deadline = setTimeout(this.guarded(late), timeout).unref();
  }

  get remote(): string {
    return this.peer.remote;
  }

  /** Whose it is: groups share the growth of windows. */
  account(group: string): void {
    this.#stream.account(group);
  }

  /** Guards calls from outside the connection's reading: a defect fails the connection. */
  get guarded(): Guarded {
    return this.#stream.guarded;
  }

  get over(): boolean {
    return this.#closed !== undefined;
  }

  /** Aborts when the call is over. Created on demand, because most calls need none. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController();
    if (this.#closed) this.#abort.abort();
    return this.#abort.signal;
  }

  /** Sends initial metadata ahead of the first packet. */
  respond(metadata: readonly Field[]): void {
    if (this.#responded || this.#closed) return;
    this.#responded = true;
    this.#stream.answer(metadata.length > 0 ? hpackEncode([...RESPONSE, ...metadata]) : RESPONSE_HEAD);
  }

  start(sink: PacketSink): void {
    this.#sink = sink;
    if (this.#closed) sink.close(this.#closed.error);
    else this.resume();
  }

  send(packet: Packet): boolean {
    if (this.#ended || this.#closed) return true;
    this.respond([]);
    if (packet.type === 'DATA' && packet.data.length > this.#stream.config.copiedBytes) {
      const head = encodeDataHead(packet, PREFIX);
      writePrefix(head, head.length - PREFIX + packet.data.length);
      this.#stream.write(head);
      this.#stream.write(packet.data as Buffer);
    } else {
      const message = encodePacket(packet, PREFIX);
      writePrefix(message, message.length - PREFIX);
      this.#stream.write(message);
    }
    this.#isFull = !this.#stream.flowing;
    return !this.#isFull;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused || this.#closed || !this.#sink) return;
    this.#paused = false;
    this.#deliver();
    this.#give();
  }

  hold(bytes: number): void {
    this.#held += bytes;
  }

  free(bytes: number): void {
    this.#held -= bytes;
    if (!this.#closed) this.#give(this.#stream.config.heldBackBytes);
  }

  get heldUp(): boolean {
    return !this.#closed && this.#held > 0 && this.#stream.short;
  }

  end(): void {
    if (this.#ended || this.#closed) return;
    this.#ended = true;
    if (this.#responded) this.#stream.end(OK_TRAILERS);
    else this.#stream.answer(hpackEncode([...RESPONSE, ...statusFields()]), true);
  }

  destroy(reason: Error): void {
    this.fail(new StatusError('Aborted', reason.message, { cause: reason }));
  }

  /** Ends the call with an error. The caller gets it after what was sent, if it still reads. */
  fail(error: StatusError): void {
    if (this.#closed) return;
    this.#ended = true;
    // First, because the stream may close as soon as its end is sent.
    this.#failure = new ChannelError(error.status, error.message, { cause: error.cause });
    const fields = statusFields(error);
    if (!this.#responded) this.#stream.answer(hpackEncode([...RESPONSE, ...fields]), true);
    else {
      this.#stream.end(hpackEncode(fields));
      this.#resetAfter(this.#stream.config.callResetMs);
    }
    this.#close(this.#failure);
  }

  // Calls of the stream.

  /** Callers have nothing to say in trailers. */
  onHeaders(): void {}

  onData(piece: Buffer): void {
    if (this.#closed) {
      // Read and drop, or its connection would wait for it.
      this.#stream.consume(piece.length);
      return;
    }
    this.#packets.add(piece);
    this.#owed += piece.length;
    if (!this.#paused) {
      this.#deliver();
      this.#give();
    }
    this.#packets.hold();
  }

  onWritable(): void {
    if (!this.#isFull || this.#closed) return;
    this.#isFull = false;
    this.#sink?.drain();
  }

  /** ANP's peers treat the end of one direction as the end of both. */
  onEnd(): void {
    this.#remoteEnded = true;
    if (!this.#paused) this.#deliver();
  }

  onClose(code: number | undefined, reason: Error | undefined): void {
    this.#stream.release();
    clearTimeout(this.#reset);
    clearTimeout(this.#deadline);
    const orderly = code === undefined || this.#ended;
    const text = reason?.message ?? 'stream was cancelled';
    this.#close(this.#failure ?? (orderly ? undefined : new ChannelError('Canceled', text, { cause: reason })));
  }

  /**
   * Lets the peer send as many bytes as were taken. Bytes that are held count against its window: those of a paused reader, of an
   * unfinished message, or of a slow reader.
   */
  #give(least = this.#held > 0 ? this.#stream.config.heldBackBytes : undefined): void {
    const kept = Math.min(this.#held + this.#packets.held, this.#owed);
    const taken = this.#owed - kept;
    this.#owed = kept;
    if (taken > 0) this.#stream.consume(taken, least);
  }

  #deliver(): void {
    try {
      while (!this.#paused && !this.#closed) {
        const packet = this.#packets.next();
        if (!packet) break;
        this.#sink?.packet(packet);
      }
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      this.fail(error);
      return;
    }
    if (!this.#remoteEnded || this.#paused || this.#closed) return;
    if (!this.#packets.empty) this.fail(new StatusError('Internal', 'the stream ended in the middle of a message'));
    this.end();
    this.#resetAfter(this.#stream.config.flushMs);
    this.#close();
  }

  /** Resets the stream if the caller has not read by then what waits to be sent. */
  #resetAfter(ms: number): void {
    if (this.#stream.pending === 0) return;
    const reset = this.guarded(() => this.#stream.reset(ErrorCode.CANCEL));
    this.#reset = setTimeout(reset, ms);
  }

  #close(error?: ChannelError): void {
    if (this.#closed) return;
    this.#closed = { error };
    clearTimeout(this.#deadline);
    this.#abort?.abort();
    this.#sink?.close(error);
  }
}
