import { ConnectionError, DEFAULT_SETTINGS, ErrorCode, MAX_WINDOW, OpenTable, windowUpdateFrame } from '@isthmus/http2';
import type { StreamSink } from './inbound.ts';
import type { Output } from './output.ts';
import { type Field, type RequestHead, readRequest } from './request.ts';
import { ResetCounter } from './reset-counter.ts';
import { ServerStream, type StreamOwner } from './stream.ts';

/** What a peer may do. */
export interface PeerLimits {
  /** What it may send ahead on one stream, in bytes. */
  readonly streamWindow: number;
  /** Streams that it may have open. */
  readonly maxStreams: number;
}

export interface StreamsOptions {
  /** What a peer may do at first. */
  readonly limits: PeerLimits;
  /** A request came: the stream is to be served at once. */
  readonly accept: (stream: ServerStream, request: RequestHead) => void;
}

/** Whose streams they are. */
export interface StreamsOwner {
  /** The last of them has ended. */
  idle(): void;
}

/** The streams of a connection, and the windows: all of what the peer says that concerns its requests. */
export class Streams implements StreamSink, StreamOwner {
  /** Of streams, by either side. */
  readonly resets = new ResetCounter();
  readonly #output: Output;
  readonly #options: StreamsOptions;
  readonly #owner: StreamsOwner;
  readonly #open = new OpenTable<number, ServerStream>();
  #limits: PeerLimits;
  /** No new stream is served. */
  #closed = false;
  /** The last stream that was served, and the last that the peer opened: beyond our GOAWAY they differ. */
  #lastServed = 0;
  #lastOpened = 0;
  /** What we may send on a new stream. */
  #sendWindow = DEFAULT_SETTINGS.initialWindowSize;
  /** What came since the peer was last given more of the connection's window. */
  #received = 0;

  constructor(output: Output, options: StreamsOptions, owner: StreamsOwner) {
    this.#output = output;
    this.#options = options;
    this.#limits = options.limits;
    this.#owner = owner;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The last that is served, for GOAWAY: the peer may try later ones elsewhere. */
  get last(): number {
    return this.#lastServed;
  }

  /** Serves no new stream. */
  close(): void {
    this.#closed = true;
  }

  /** Ends all, with their connection. */
  end(): void {
    this.close();
    for (const stream of [...this.#open.values()]) stream.close(ErrorCode.CANCEL);
  }

  /** @param initialWindow what the peer takes on each stream from now on, whenever it was opened (section 6.9.2) */
  resize(initialWindow: number): void {
    const by = initialWindow - this.#sendWindow;
    this.#sendWindow = initialWindow;
    for (const stream of [...this.#open.values()]) if (!stream.widen(by)) throw tooWide();
  }

  /** The peer may do more from now on, on the streams that it has as well. */
  allow(limits: PeerLimits): void {
    const by = limits.streamWindow - this.#limits.streamWindow;
    this.#limits = limits;
    for (const stream of this.#open.values()) stream.allow(by);
  }

  // What the peer says.

  headers(id: number, fields: readonly Field[], ends: boolean): void {
    const open = this.#open.get(id);
    if (open) {
      // Trailers, in which gRPC's callers say nothing.
      if (ends) open.receiveEnd();
      else open.reset(ErrorCode.PROTOCOL_ERROR);
      return;
    }
    // Of a stream that has ended meanwhile.
    if (id <= this.#lastOpened) return;
    this.#lastOpened = id;
    // Beyond what our GOAWAY named: the peer knows that nobody saw it.
    if (this.#closed) return;
    this.#lastServed = id;
    this.#serve(id, readRequest(fields), ends);
  }

  #serve(id: number, request: RequestHead | undefined, ends: boolean): void {
    const stream = new ServerStream(id, {
      output: this.#output,
      owner: this,
      receiveWindow: this.#limits.streamWindow,
      sendWindow: this.#sendWindow,
    });
    if (!request) stream.reset(ErrorCode.PROTOCOL_ERROR);
    else if (this.#open.size >= this.#limits.maxStreams) stream.reset(ErrorCode.REFUSED_STREAM);
    else {
      this.#open.set(id, stream);
      this.#options.accept(stream, request);
      if (ends) stream.receiveEnd();
    }
  }

  data(id: number, piece: Buffer, padding: number): void {
    const length = piece.length + padding;
    this.#received += length;
    if (this.#received >= MAX_WINDOW / 2) {
      this.#output.add(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#known(id);
    stream?.expect(length);
    if (padding > 0) stream?.read(padding);
    if (piece.length > 0) stream?.receive(piece);
  }

  dataEnds(id: number): void {
    this.#open.get(id)?.receiveEnd();
  }

  reset(id: number, code: number): void {
    const stream = this.#known(id);
    if (stream && code === ErrorCode.CANCEL) this.resets.count();
    stream?.close(code);
  }

  windowUpdate(id: number, by: number): void {
    if (id !== 0) {
      const stream = this.#known(id);
      if (by === 0) stream?.reset(ErrorCode.PROTOCOL_ERROR);
      else if (stream?.widen(by) === false) stream.reset(ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    if (by === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
    if (!this.#output.widen(by)) throw tooWide();
  }

  /** @returns undefined for a stream that has ended. @throws ConnectionError for one that was never opened */
  #known(id: number): ServerStream | undefined {
    if (id > this.#lastOpened) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not open`);
    return this.#open.get(id);
  }

  // What a stream says.

  ended(id: number, code?: number): void {
    this.#open.delete(id);
    // CANCEL is our own word for a tunnel that ended abruptly, and nobody's fault; see `reset` for the peer's.
    if (code !== undefined && code !== ErrorCode.CANCEL) this.resets.count();
    if (this.#open.size === 0) this.#owner.idle();
  }
}

function tooWide(): ConnectionError {
  return new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
}
