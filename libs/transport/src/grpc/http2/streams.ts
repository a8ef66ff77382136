import {
  beginsMessage,
  ClientIds,
  ConnectionError,
  ErrorCode,
  type Field,
  InitialWindow,
  MAX_WINDOW,
  OpenTable,
  ResetCounter,
  rstStreamFrame,
  SendWindow,
  windowUpdateFrame,
} from '@isthmus/http2';
import type { StreamSink } from './inbound.ts';
import type { Output } from './output.ts';
import { type RequestHead, readRequest } from './request.ts';
import { ServerStream, type StreamOwner } from './stream.ts';

/** Streams of one connection that its peer may reset, break, or have refused in 10 seconds. */
export const MAX_RESETS = 300;

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
  /** What the peer caused, and no reset that code of ours chose. */
  readonly resets = new ResetCounter(MAX_RESETS);
  readonly #output: Output;
  readonly #options: StreamsOptions;
  readonly #owner: StreamsOwner;
  readonly #open = new OpenTable<number, ServerStream>();
  #limits: PeerLimits;
  /** No new stream is served. */
  #closed = false;
  /** The last stream that was served. Beyond our GOAWAY it is not the last that the peer opened. */
  #lastServed = 0;
  readonly #ids = new ClientIds();
  readonly #initialWindow: InitialWindow;
  /** What came since the peer was last given more of the connection's window. */
  #received = 0;

  constructor(output: Output, options: StreamsOptions, owner: StreamsOwner) {
    this.#output = output;
    this.#options = options;
    this.#limits = options.limits;
    this.#owner = owner;
    this.#initialWindow = new InitialWindow(
      output.guarded(() => this.#wake()),
      () => Array.from(this.#open.values(), ({ sendWindow }) => sendWindow),
    );
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

  /** Ends all, with their connection. @param reason why, where it is not the peer that went away */
  end(reason?: Error): void {
    this.close();
    for (const stream of [...this.#open.values()]) stream.close(ErrorCode.CANCEL, reason);
  }

  /** @param initialWindow what the peer takes on each stream from now on, whenever it was opened (section 6.9.2) */
  resize(initialWindow: number): void {
    this.#initialWindow.resize(initialWindow);
  }

  #wake(): void {
    for (const stream of [...this.#open.values()]) stream.wake();
  }

  /** The peer may do more from now on, on the streams that it has as well. */
  allow(limits: PeerLimits): void {
    const by = limits.streamWindow - this.#limits.streamWindow;
    this.#limits = limits;
    for (const stream of this.#open.values()) stream.allow(by);
  }

  // What the peer says.

  section(id: number, fields: readonly Field[], ends: boolean): void {
    const open = this.#open.get(id);
    // Trailers, in which gRPC's callers say nothing.
    if (open) open.receiveSection(fields, ends);
    else if (this.#ids.begins(id)) this.#begin(id, fields, ends);
    else if (beginsMessage(fields)) throw this.#ids.again(id);
    else this.#late(id);
  }

  #begin(id: number, fields: readonly Field[], ends: boolean): void {
    // Beyond what our GOAWAY named: the peer knows that nobody saw it.
    if (this.#closed) return;
    this.#lastServed = id;
    const request = readRequest(fields);
    if (!request) this.#refuse(id, ErrorCode.PROTOCOL_ERROR);
    else if (this.#open.size >= this.#limits.maxStreams) this.#refuse(id, ErrorCode.REFUSED_STREAM);
    else {
      const stream = new ServerStream(id, {
        output: this.#output,
        owner: this,
        incoming: request.incoming,
        receiveWindow: this.#limits.streamWindow,
        sendWindow: new SendWindow(this.#initialWindow),
      });
      this.#open.set(id, stream);
      this.#options.accept(stream, request.head);
      if (ends) stream.receiveEnd();
    }
  }

  #refuse(id: number, code: number): void {
    this.resets.count();
    this.#output.add(rstStreamFrame(id, code));
  }

  /** It came for a stream that is over: wrong if the peer had ended it, and else on its way since before it knew. */
  #late(id: number): void {
    if (this.#ids.hasEnded(id)) this.#refuse(id, ErrorCode.STREAM_CLOSED);
  }

  data(id: number, piece: Buffer, padding: number): void {
    const length = piece.length + padding;
    this.#received += length;
    if (this.#received >= MAX_WINDOW / 2) {
      this.#output.add(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#known(id);
    stream?.expect(piece.length, padding);
    if (piece.length > 0) stream?.receive(piece);
  }

  dataFrame(id: number, ends: boolean): void {
    const stream = this.#open.get(id);
    if (!stream) this.#late(id);
    else if (ends) stream.receiveEnd();
  }

  reset(id: number, code: number): void {
    const stream = this.#known(id);
    if (stream) this.resets.count();
    stream?.receiveReset(code);
  }

  windowUpdate(id: number, by: number): void {
    if (id !== 0) {
      const stream = this.#known(id);
      stream?.widen(by);
      return;
    }
    if (by === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
    if (!this.#output.widen(by)) throw tooWide();
  }

  /** @returns undefined for a stream that has ended. @throws ConnectionError for one that was never opened */
  #known(id: number): ServerStream | undefined {
    if (!this.#ids.used(id)) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not open`);
    return this.#open.get(id);
  }

  // What a stream says.

  broken(): void {
    this.resets.count();
  }

  ended({ id, remoteEnded }: ServerStream): void {
    this.#open.delete(id);
    if (remoteEnded) this.#ids.ended(id);
    if (this.#open.size === 0) this.#owner.idle();
  }
}

function tooWide(): ConnectionError {
  return new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
}
