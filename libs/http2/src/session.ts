import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { ConnectionError, ErrorCode } from './codes.ts';
import { goawayFrame, PREFACE, pingFrame, settingsFrame, windowUpdateFrame } from './frames.ts';
import type { Head, OutgoingHead } from './head.ts';
import { Pings } from './pings.ts';
import { CONNECTION_WINDOW, Receiving } from './receiving.ts';
import { Sending } from './sending.ts';
import { DEFAULT_SETTINGS, type Settings } from './settings.ts';
import type { Http2Stream } from './stream.ts';
import { Streams } from './streams.ts';

/** How long what was written last may take to leave when the session ends, in milliseconds. */
const LINGER = 1000;

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
  /** A listener threw: a defect of whoever listens, which ends the session. */
  fault: [error: Error];
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
  readonly #lost: (reason: Error) => Error;
  readonly #sending: Sending;
  readonly #streams: Streams;
  readonly #receiving: Receiving;
  readonly #pings = new Pings();
  #over: Error | undefined;
  /** Bytes that came, ever. */
  bytesRead = 0;

  constructor({ role, socket, settings, lost = (reason) => reason }: SessionOptions) {
    super();
    this.socket = socket;
    this.#lost = lost;
    this.#sending = new Sending(
      socket,
      { maxFrame: DEFAULT_SETTINGS.maxFrameSize, window: DEFAULT_SETTINGS.initialWindowSize },
      (error) => this.#fail(error),
    );
    this.#streams = new Streams({
      role,
      settings,
      sending: this.#sending,
      rtt: () => this.#pings.rtt,
      idle: () => this.#endWhenIdle(),
    });
    this.#receiving = new Receiving({
      role,
      settings,
      streams: this.#streams,
      sending: this.#sending,
      pings: this.#pings,
      opened: (stream, head) => this.emit('stream', stream, head),
      goaway: (reason) => (reason ? this.#end(reason) : this.#leave()),
    });
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
    return this.#streams.refusesNew;
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
    if (this.closed) throw new Error('session is closing');
    const stream = this.#streams.request(head);
    if (this.#streams.usedUp) this.#leave();
    return stream;
  }

  /** Asks the other side for a sign of life. @param done called when it came; never when the session ends before */
  ping(done?: () => void): void {
    if (!this.#over && this.#pings.begin(done)) this.#sending.frame(pingFrame(Buffer.alloc(8), false));
  }

  /** Goes away in good order: no new stream either way, and the connection ends after the last. */
  close(): void {
    if (this.closed || this.#over) return;
    this.#streams.refuseNew();
    this.#sending.frame(goawayFrame(this.#streams.last));
    this.#endWhenIdle();
  }

  /** Ends the connection, and every stream that has not ended. */
  destroy(reason: Error = new Error('session was destroyed')): void {
    this.#end(reason);
  }

  /** No stream is opened here any more: the other side goes, or the ids are used up. */
  #leave(): void {
    if (!this.closed) this.emit('goaway');
    this.close();
  }

  #endWhenIdle(): void {
    if (this.closed && this.#streams.size === 0) this.#end(new Error('session closed'));
  }

  #receive(chunk: Buffer): void {
    this.bytesRead += chunk.length;
    try {
      this.#receiving.read(chunk);
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  /** The other side broke the protocol, or a listener threw: it is told, and the connection ends. */
  #fail(error: Error): void {
    if (this.#over) return;
    const code = error instanceof ConnectionError ? error.code : ErrorCode.INTERNAL_ERROR;
    if (!(error instanceof ConnectionError)) this.emit('fault', error);
    this.#streams.refuseNew();
    this.#sending.frame(goawayFrame(this.#streams.last, code, error.message));
    this.#end(error);
  }

  #end(cause: Error): void {
    if (this.#over) return;
    const reason = this.#lost(cause);
    const silent = this.closed;
    this.#streams.refuseNew();
    this.#over = reason;
    if (!silent) this.#sending.frame(goawayFrame(this.#streams.last));
    this.#receiving.stop();
    for (const stream of this.#streams.values()) stream.lose(reason);
    const { socket } = this;
    socket.destroySoon();
    const timer = setTimeout(() => socket.destroy(), LINGER);
    socket.once('close', () => clearTimeout(timer));
    this.emit('close', reason);
  }
}
