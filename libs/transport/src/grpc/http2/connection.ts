import type { Socket } from 'node:net';
import {
  ConnectionError,
  DEFAULT_SETTINGS,
  ErrorCode,
  goawayFrame,
  HpackDecoder,
  MAX_WINDOW,
  OpenTable,
  PREFACE,
  pingFrame,
  type Settings,
  settingsAck,
  settingsFrame,
  windowUpdateFrame,
} from '@isthmus/http2';
import { Inbound, type InboundSink } from './inbound.ts';
import { Output } from './output.ts';
import { type RequestHead, readRequest } from './request.ts';
import { ResetCounter } from './reset-counter.ts';
import { ServerStream } from './stream.ts';
import { Watch } from './watch.ts';

/** What a request's header fields may come to, in bytes. */
const MAX_FIELDS = 64 * 1024;

/** What may wait for a peer that asks (PING, SETTINGS, streams that are refused) and does not read, in bytes. */
const MAX_BACKLOG = 1024 * 1024;

/** How long a peer may take to read our GOAWAY and close before it is cut off, in milliseconds. */
const LINGER_MS = 1_000;

/** How long a peer may take to read what its last stream still had to say, in milliseconds. */
const FLUSH_MS = 20_000;

const SETTINGS_ACK = settingsAck();

export interface ConnectionOptions {
  /** Our first words, which say what the peer may do. */
  readonly greeting: Buffer;
  /** What a peer may send ahead on one stream, in bytes. */
  readonly streamWindow: number;
  /** Streams that a peer may have open. */
  readonly maxStreams: number;
  /** How long a peer may be silent before it is pinged, in milliseconds. */
  readonly keepaliveMs: number;
  /** A request came: the stream is to be served at once. */
  readonly accept: (stream: ServerStream, request: RequestHead) => void;
  /** The peer broke the protocol, or did not answer a PING: the connection ends. */
  readonly failed: (error: Error) => void;
  readonly closed: () => void;
}

/**
 * `greeting` until the SETTINGS of both; `open`; `leaving` once our GOAWAY went out, until the last stream ends; `ended` when
 * nothing is read or sent any more.
 */
type State = 'greeting' | 'open' | 'leaving' | 'ended';

/** HTTP/2's server side on one socket (RFC 9113), made for few streams a connection and cheap to begin and to end. */
export class ServerConnection implements InboundSink {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #output: Output;
  readonly #inbound = new Inbound(this, MAX_FIELDS);
  readonly #decoder = new HpackDecoder(DEFAULT_SETTINGS.headerTableSize, MAX_FIELDS);
  readonly #resets = new ResetCounter();
  readonly #watch: Watch;
  readonly #streams = new OpenTable<number, ServerStream>();
  #state: State = 'greeting';
  /** Bytes of the preface that came. */
  #preface = 0;
  /** The last stream that was served, and the last that the peer opened: beyond our GOAWAY they differ. */
  #lastServed = 0;
  #lastOpened = 0;
  /** What we may send on a new stream. */
  #streamWindow = DEFAULT_SETTINGS.initialWindowSize;
  /** What came since the peer was last given more of the connection's window. */
  #received = 0;
  #linger: NodeJS.Timeout | undefined;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#output = new Output(socket);
    this.#watch = new Watch({
      keepaliveMs: options.keepaliveMs,
      ping: () => this.#output.add(pingFrame(Buffer.alloc(8), false)),
      dead: (error) => this.#fail(new ConnectionError(ErrorCode.NO_ERROR, error.message)),
    });
    // HTTP/2 knows no half-open connection: what a killed process leaves behind is a FIN.
    socket.once('end', () => socket.destroy());
    socket.once('close', () => this.#closed());
    if (socket.destroyed) queueMicrotask(() => this.#closed());
  }

  /** Begins to read. @param first what came before */
  start(first?: Buffer): void {
    if (first) this.#read(first);
    if (this.#state === 'greeting') this.#watch.awaitGreeting();
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk)).resume();
  }

  /** Takes no new stream and lets those that run finish. */
  leave(): void {
    if (this.#state === 'leaving' || this.#state === 'ended') return;
    if (this.#state === 'greeting') this.#greet();
    this.#state = 'leaving';
    this.#goaway(ErrorCode.NO_ERROR);
    if (this.#streams.size === 0) this.#end();
  }

  /** Cuts the connection and every stream on it. */
  destroy(): void {
    this.#output.flush();
    this.#socket.destroy();
  }

  // What the peer says.

  #read(chunk: Buffer): void {
    if (this.#state === 'ended') return;
    this.#watch.heard();
    try {
      this.#inbound.read(this.#preface < PREFACE.length ? this.#readPreface(chunk) : chunk);
      this.#checkLimits();
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      this.#fail(error);
    }
  }

  #readPreface(chunk: Buffer): Buffer {
    const length = Math.min(chunk.length, PREFACE.length - this.#preface);
    if (PREFACE.compare(chunk, 0, length, this.#preface, this.#preface + length) !== 0) {
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'no HTTP/2 preface');
    }
    this.#preface += length;
    return chunk.subarray(length);
  }

  #checkLimits(): void {
    const calm = (text: string) => new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, text);
    if (this.#resets.tooMany) throw calm(`more than ${ResetCounter.most} streams were reset in a row`);
    if (this.#output.backlog > MAX_BACKLOG) throw calm('peer asks for more than it reads');
  }

  settings({ initialWindowSize, maxFrameSize }: Partial<Settings>): void {
    if (this.#state === 'greeting') {
      this.#greet();
      this.#state = 'open';
      this.#watch.greeted();
    }
    this.#output.add(SETTINGS_ACK);
    if (maxFrameSize !== undefined) this.#output.maxFrame = maxFrameSize;
    if (initialWindowSize === undefined) return;
    const by = initialWindowSize - this.#streamWindow;
    this.#streamWindow = initialWindowSize;
    for (const stream of [...this.#streams.values()]) if (!stream.widen(by)) throw tooWide();
  }

  ping(payload: Buffer): void {
    this.#output.addPatiently(pingFrame(payload, true));
  }

  headers(id: number, section: Buffer, ends: boolean): void {
    // Decoded in any case: the tables of both ends must stay alike.
    const fields = this.#decoder.decode(section);
    const open = this.#streams.get(id);
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
    if (this.#state !== 'open') return;
    this.#lastServed = id;
    this.#open(id, readRequest(fields), ends);
  }

  #open(id: number, request: RequestHead | undefined, ends: boolean): void {
    const stream = new ServerStream(id, {
      output: this.#output,
      receiveWindow: this.#options.streamWindow,
      sendWindow: this.#streamWindow,
      ended: (code) => this.#streamEnded(id, code),
    });
    if (!request) stream.reset(ErrorCode.PROTOCOL_ERROR);
    else if (this.#streams.size >= this.#options.maxStreams) stream.reset(ErrorCode.REFUSED_STREAM);
    else {
      this.#streams.set(id, stream);
      this.#options.accept(stream, request);
      if (ends) stream.receiveEnd();
    }
  }

  #streamEnded(id: number, code?: number): void {
    this.#streams.delete(id);
    // CANCEL is our own word for a tunnel that ended abruptly, and nobody's fault; see `reset` for the peer's.
    if (code !== undefined && code !== ErrorCode.CANCEL) this.#resets.count();
    if (this.#state === 'leaving' && this.#streams.size === 0) this.#end();
  }

  data(id: number, piece: Buffer, padding: number): void {
    const length = piece.length + padding;
    this.#received += length;
    if (this.#received >= MAX_WINDOW / 2) {
      this.#output.add(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#stream(id);
    stream?.expect(length);
    if (padding > 0) stream?.read(padding);
    if (piece.length > 0) stream?.receive(piece);
  }

  dataEnds(id: number): void {
    this.#streams.get(id)?.receiveEnd();
  }

  reset(id: number, code: number): void {
    const stream = this.#stream(id);
    if (stream && code === ErrorCode.CANCEL) this.#resets.count();
    stream?.close(code);
  }

  windowUpdate(id: number, by: number): void {
    if (id !== 0) {
      const stream = this.#stream(id);
      if (by === 0) stream?.reset(ErrorCode.PROTOCOL_ERROR);
      else if (stream?.widen(by) === false) stream.reset(ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    if (by === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
    if (!this.#output.widen(by)) throw tooWide();
  }

  /** @returns undefined for a stream that has ended. @throws ConnectionError for one that was never opened */
  #stream(id: number): ServerStream | undefined {
    if (id > this.#lastOpened) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not open`);
    return this.#streams.get(id);
  }

  /** Our SETTINGS wait for the peer's, which come unasked: one write answers them, and the peer is woken once. */
  #greet(): void {
    this.#output.add(this.#options.greeting);
  }

  // How it ends.

  #goaway(code: number): void {
    this.#output.add(goawayFrame(this.#lastServed, code));
  }

  #fail(error: ConnectionError): void {
    if (this.#state === 'ended') return;
    this.#options.failed(error);
    if (this.#state === 'greeting') this.#greet();
    this.#goaway(error.code);
    this.#end(LINGER_MS);
  }

  /** @param patience how long what was written may take to leave, in milliseconds */
  #end(patience = FLUSH_MS): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#cutAfter(patience);
    this.#socket.once('finish', () => this.#cutAfter(LINGER_MS));
    this.#output.end();
    this.#endStreams();
  }

  #cutAfter(ms: number): void {
    clearTimeout(this.#linger);
    if (!this.#socket.destroyed) this.#linger = setTimeout(() => this.#socket.destroy(), ms);
  }

  #closed(): void {
    this.#state = 'ended';
    clearTimeout(this.#linger);
    this.#output.stop();
    this.#endStreams();
    this.#options.closed();
  }

  #endStreams(): void {
    this.#watch.stop();
    for (const stream of [...this.#streams.values()]) stream.close(ErrorCode.CANCEL);
  }
}

/** The window of the whole connection exceeds the sum of its streams', or one that stalls would stop the rest. */
export function greeting(initialWindowSize: number, maxConcurrentStreams: number): Buffer {
  return Buffer.concat([
    settingsFrame({ initialWindowSize, maxConcurrentStreams, maxHeaderListSize: MAX_FIELDS }),
    windowUpdateFrame(0, MAX_WINDOW - DEFAULT_SETTINGS.initialWindowSize),
  ]);
}

function tooWide(): ConnectionError {
  return new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
}
