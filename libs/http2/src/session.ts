import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { ConnectionError, codeName, ErrorCode, Flag, FrameType, MAX_WINDOW } from './codes.ts';
import { type FrameHandler, FrameReader } from './frame-reader.ts';
import {
  goawayFrame,
  headersFrames,
  PREFACE,
  pingFrame,
  rstStreamFrame,
  settingsAck,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import { encodeHead, type Head, HeadReader, type OutgoingHead, type ReceivedHead } from './head.ts';
import { OpenTable } from './open-table.ts';
import { Pings } from './pings.ts';
import { ReceiveWindow } from './receive-window.ts';
import { Sending } from './sending.ts';
import { DEFAULT_SETTINGS, readSettings, type Settings } from './settings.ts';
import { Http2Stream, type Wire } from './stream.ts';

/** How long what was written last may take to leave when the session ends, in milliseconds. */
const LINGER = 1000;

/** What may come on the connection before the other side is given more: all streams together are bounded by their own windows. */
const CONNECTION_WINDOW = MAX_WINDOW;

export interface SessionOptions {
  readonly role: 'client' | 'server';
  /** Connected, with TLS done. It belongs to the session from now on. */
  readonly socket: Socket;
  /** What the other side may do. */
  readonly settings: Pick<
    Settings,
    'initialWindowSize' | 'maxConcurrentStreams' | 'maxFrameSize' | 'maxHeaderListSize'
  >;
  /** What is said of the session's end to whoever held a stream. Default: the reason itself. */
  readonly lost?: (reason: Error) => Error;
}

interface SessionEvents {
  /** At the server: the other side opened a stream. */
  stream: [stream: Http2Stream, head: Head];
  /** No new stream may be opened, since the other side goes away or the ids are used up; those that are there go on. */
  goaway: [];
  /** The session is over, and every stream on it that had not ended before. */
  close: [reason: Error];
}

/**
 * One side of an HTTP/2 connection (RFC 9113), without server push and priorities.
 *
 * It reads whatever comes, also while it cannot write. Node's own endpoint stops reading while a write is under way, so two
 * of them that write much to each other wait for each other for good (docs/adr/0004).
 */
export class Http2Session extends EventEmitter<SessionEvents> {
  readonly socket: Socket;
  readonly #role: 'client' | 'server';
  readonly #settings: SessionOptions['settings'];
  readonly #lost: (reason: Error) => Error;
  readonly #streams = new OpenTable<number, Http2Stream>();
  readonly #reader: FrameReader;
  readonly #heads: HeadReader;
  readonly #sending: Sending;
  readonly #wire: Wire;
  readonly #pings = new Pings();
  readonly #rtt = () => this.#pings.rtt;
  #peer: Settings = DEFAULT_SETTINGS;
  /** The highest stream that the other side opened. */
  #lastPeerStream = 0;
  #nextStream = 1;
  /** Of the connection's window, what was received and not yet given back. */
  #received = 0;
  #prefaceLeft: number;
  #closed = false;
  #over: Error | undefined;
  /** Bytes that came, ever. */
  bytesRead = 0;

  constructor({ role, socket, settings, lost = (reason) => reason }: SessionOptions) {
    super();
    this.socket = socket;
    this.#role = role;
    this.#settings = settings;
    this.#lost = lost;
    this.#reader = new FrameReader(this.#handler(), settings.maxFrameSize);
    this.#heads = new HeadReader(DEFAULT_SETTINGS.headerTableSize, settings.maxHeaderListSize);
    this.#sending = new Sending(
      socket,
      { maxFrame: DEFAULT_SETTINGS.maxFrameSize, window: DEFAULT_SETTINGS.initialWindowSize },
      () => this.#fail(new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'the other side does not read')),
    );
    this.#wire = this.#wireOfStreams();
    this.#prefaceLeft = role === 'server' ? PREFACE.length : 0;
    if (role === 'client') this.#sending.frame(PREFACE);
    this.#sending.frame(settingsFrame({ ...settings, enablePush: false }));
    this.#sending.frame(windowUpdateFrame(0, CONNECTION_WINDOW - DEFAULT_SETTINGS.initialWindowSize));
    this.ping();
    socket.on('data', (chunk: Buffer) => this.#receive(chunk)).resume();
    socket.on('error', (error) => this.#end(error));
    socket.once('close', () => this.#end(new Error('connection closed')));
    // HTTP/2 knows no half-open connection: what a killed process leaves behind is a FIN, and often no more.
    socket.once('end', () => this.#end(new Error('connection closed')));
    if (socket.destroyed || socket.readableEnded) queueMicrotask(() => this.#end(new Error('connection closed')));
  }

  /** Bytes that were given to the socket, ever. */
  get bytesWritten(): number {
    return this.#sending.bytes;
  }

  /** Whether no new stream may be opened: it, or the other side, goes away. */
  get closed(): boolean {
    return this.#closed;
  }

  get destroyed(): boolean {
    return this.#over !== undefined;
  }

  /** Streams that are open on the wire. */
  get open(): number {
    return this.#streams.size;
  }

  /**
   * Opens a stream; for the client.
   * @throws TypeError for a head that HTTP/2 cannot carry; Error when the session goes away, or the other side takes no more streams
   */
  request(head: OutgoingHead): Http2Stream {
    if (this.#over) throw this.#over;
    if (this.#closed) throw new Error('session is closing');
    if (this.#streams.size >= this.#peer.maxConcurrentStreams)
      throw new Error(`the other side takes no more than ${this.#peer.maxConcurrentStreams} streams`);
    const block = encodeHead(head);
    const stream = this.#open(this.#nextStream);
    this.#nextStream += 2;
    this.#sendHead(stream.id, block, false);
    if (this.#nextStream > MAX_WINDOW) this.#leave();
    return stream;
  }

  /** Asks the other side for a sign of life. @param done called when it came; never when the session ends before */
  ping(done?: () => void): void {
    if (!this.#over && this.#pings.begin(done)) this.#sending.frame(pingFrame(Buffer.alloc(8), false));
  }

  /** Goes away in good order: no new stream either way, and the connection ends after the last. */
  close(): void {
    if (this.#closed || this.#over) return;
    this.#closed = true;
    this.#sending.frame(goawayFrame(this.#lastPeerStream));
    this.#endWhenIdle();
  }

  /** Ends the connection, and every stream that has not ended. */
  destroy(reason: Error = new Error('session was destroyed')): void {
    this.#end(reason);
  }

  #open(id: number): Http2Stream {
    const window = new ReceiveWindow(this.#settings.initialWindowSize, this.#rtt);
    const stream = new Http2Stream(id, this.#wire, window, this.#peer.initialWindowSize);
    this.#streams.set(id, stream);
    return stream;
  }

  #wireOfStreams(): Wire {
    return {
      offer: (stream) => this.#sending.offer(stream),
      emptied: (stream) => this.#sending.emptied(stream),
      head: ({ id }, head, endStream) => this.#sendHead(id, encodeHead(head), endStream),
      credit: ({ id }, bytes) => this.#sending.frame(windowUpdateFrame(id, bytes)),
      reset: ({ id }, code) => this.#sending.frame(rstStreamFrame(id, code)),
      closed: ({ id }) => {
        this.#streams.delete(id);
        this.#endWhenIdle();
      },
    };
  }

  #sendHead(id: number, block: Buffer, endStream: boolean): void {
    for (const frame of headersFrames(id, block, endStream, this.#sending.maxFrame)) this.#sending.frame(frame);
  }

  /** No stream is opened here any more: the other side goes, or the ids are used up. */
  #leave(): void {
    if (!this.#closed) this.emit('goaway');
    this.close();
  }

  #endWhenIdle(): void {
    if (this.#closed && this.#streams.size === 0) this.#end(new Error('session closed'));
  }

  #receive(chunk: Buffer): void {
    this.bytesRead += chunk.length;
    try {
      const bytes = this.#prefaceLeft > 0 ? this.#readPreface(chunk) : chunk;
      if (bytes.length > 0) this.#reader.read(bytes);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  #readPreface(chunk: Buffer): Buffer {
    const start = PREFACE.length - this.#prefaceLeft;
    const part = chunk.subarray(0, this.#prefaceLeft);
    if (!PREFACE.subarray(start, start + part.length).equals(part))
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the other side does not speak HTTP/2');
    this.#prefaceLeft -= part.length;
    return chunk.subarray(part.length);
  }

  #handler(): FrameHandler {
    return {
      data: (id, bytes, flags, last, padding) =>
        this.#onData(id, bytes, last && (flags & Flag.END_STREAM) !== 0, padding),
      frame: (type, flags, id, payload) => this.#onFrame(type, flags, id, payload),
    };
  }

  #onData(id: number, bytes: Buffer, ends: boolean, padding: number): void {
    this.#heads.expect(FrameType.DATA, id);
    this.#received += bytes.length + padding;
    if (this.#received > CONNECTION_WINDOW / 2) {
      this.#sending.frame(windowUpdateFrame(0, this.#received));
      this.#received = 0;
    }
    const stream = this.#known(id, 'DATA');
    stream?.receiveData(bytes, padding);
    if (ends) stream?.receiveEnd();
  }

  #onFrame(type: number, flags: number, id: number, payload: Buffer): void {
    this.#heads.expect(type, id);
    switch (type) {
      case FrameType.HEADERS:
        this.#onHead(this.#heads.headers(id, flags, payload));
        break;
      case FrameType.CONTINUATION:
        this.#onHead(this.#heads.continuation(flags, payload));
        break;
      case FrameType.RST_STREAM:
        want(payload, 4, 'RST_STREAM');
        this.#known(id, 'RST_STREAM')?.receiveReset(payload.readUInt32BE(0));
        break;
      case FrameType.SETTINGS:
        this.#onSettings(flags, payload);
        break;
      case FrameType.PUSH_PROMISE:
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'PUSH_PROMISE, which settings forbid');
      case FrameType.PING:
        this.#onPing(flags, payload);
        break;
      case FrameType.GOAWAY:
        this.#onGoaway(payload);
        break;
      case FrameType.WINDOW_UPDATE:
        this.#onWindowUpdate(id, payload);
        break;
      default:
      // Of other types nobody knows anything; they are passed over (section 5.5).
    }
  }

  #onHead(received: ReceivedHead | undefined): void {
    if (!received) return;
    const { stream: id, head, ends } = received;
    const opens = this.#role === 'server' && id > this.#lastPeerStream;
    if (!opens) {
      this.#known(id, 'HEADERS')?.receiveHead(head, ends);
      return;
    }
    if (id % 2 === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not a client's`);
    this.#lastPeerStream = id;
    if (this.#closed || this.#streams.size >= this.#settings.maxConcurrentStreams) {
      this.#sending.frame(rstStreamFrame(id, ErrorCode.REFUSED_STREAM));
      return;
    }
    const stream = this.#open(id);
    this.emit('stream', stream, head);
    if (ends) stream.receiveEnd();
  }

  /** The stream; undefined for one that has closed, of which frames may still be under way. */
  #known(id: number, frame: string): Http2Stream | undefined {
    const stream = this.#streams.get(id);
    if (stream) return stream;
    const opened = this.#role === 'client' ? id < this.#nextStream && id % 2 === 1 : id <= this.#lastPeerStream;
    if (id === 0 || !opened) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `${frame} on stream ${id}`);
    return undefined;
  }

  #onSettings(flags: number, payload: Buffer): void {
    if (flags & Flag.ACK) return;
    const before = this.#peer;
    this.#peer = { ...before, ...readSettings(payload) };
    this.#sending.maxFrame = this.#peer.maxFrameSize;
    const change = this.#peer.initialWindowSize - before.initialWindowSize;
    if (change !== 0) for (const stream of this.#streams.values()) stream.allow(change);
    this.#sending.frame(settingsAck());
  }

  #onPing(flags: number, payload: Buffer): void {
    want(payload, 8, 'PING');
    if (flags & Flag.ACK) this.#pings.answered();
    else this.#sending.frame(pingFrame(payload, true));
  }

  #onGoaway(payload: Buffer): void {
    if (payload.length < 8) throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, 'a short GOAWAY');
    const last = payload.readUInt32BE(0) & 0x7fffffff;
    const code = payload.readUInt32BE(4);
    if (code !== ErrorCode.NO_ERROR) {
      const text = payload.subarray(8).toString();
      this.#end(new Error(`the other side ended it: ${codeName(code)} ${text}`.trim()));
      return;
    }
    if (this.#role === 'client') {
      for (const stream of this.#streams.values()) if (stream.id > last) stream.receiveReset(ErrorCode.REFUSED_STREAM);
    }
    this.#leave();
  }

  #onWindowUpdate(id: number, payload: Buffer): void {
    want(payload, 4, 'WINDOW_UPDATE');
    const bytes = payload.readUInt32BE(0) & 0x7fffffff;
    if (bytes === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of nothing');
    if (id !== 0) {
      this.#known(id, 'WINDOW_UPDATE')?.allow(bytes);
      return;
    }
    if (this.#sending.window + bytes > MAX_WINDOW)
      throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'a window beyond 2^31 - 1');
    this.#sending.allow(bytes);
  }

  /** The other side broke the protocol, or a listener threw: it is told, and the connection ends. */
  #fail(error: Error): void {
    if (this.#over) return;
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    this.#closed = true;
    this.#sending.frame(goawayFrame(this.#lastPeerStream, code, error.message));
    this.#end(error);
  }

  #end(cause: Error): void {
    if (this.#over) return;
    const reason = this.#lost(cause);
    const silent = this.#closed;
    this.#closed = true;
    this.#over = reason;
    if (!silent) this.#sending.frame(goawayFrame(this.#lastPeerStream));
    this.#reader.stop();
    for (const stream of this.#streams.values()) stream.lose(reason);
    const { socket } = this;
    socket.destroySoon();
    const timer = setTimeout(() => socket.destroy(), LINGER);
    socket.once('close', () => clearTimeout(timer));
    this.emit('close', reason);
  }
}

function want(payload: Buffer, length: number, frame: string): void {
  if (payload.length !== length)
    throw new ConnectionError(ErrorCode.FRAME_SIZE_ERROR, `${frame} of ${payload.length} bytes`);
}
