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

/** How long the last bytes may take to leave when the session ends, in milliseconds. */
const LINGER = 1000;

export interface SessionOptions {
  readonly role: 'client' | 'server';
  /** Connected, after the TLS handshake. The session owns it from now on. */
  readonly socket: Socket;
  /** What the other side may do. */
  readonly settings: Pick<
    Settings,
    'initialWindowSize' | 'maxConcurrentStreams' | 'maxFrameSize' | 'maxHeaderListSize'
  >;
  /** Makes the error that open streams get when the session ends. Default: the reason itself. */
  readonly lost?: (reason: Error) => Error;
}

interface SessionEvents {
  /** At the server: called when the other side opened a stream. */
  stream: [stream: Http2Stream, head: Head];
  /** No new stream can be opened, because the other side is leaving or the ids are used up. Open streams continue. */
  goaway: [];
  /** A listener threw. That is a bug in the listener, and it ends the session. */
  fault: [error: Error];
  /** The session has ended, with all its streams. */
  close: [reason: Error];
}

/**
 * One side of an HTTP/2 connection (RFC 9113), without server push and priorities.
 *
 * It keeps reading even while it cannot write. Node's own endpoint stops reading during a write, so two of them that write much to
 * each other can deadlock (docs/adr/0004).
 */
export class Http2Session extends EventEmitter<SessionEvents> {
  readonly socket: Socket;
  readonly #lost: (reason: Error) => Error;
  readonly #sending: Sending;
  readonly #streams: Streams;
  readonly #receiving: Receiving;
  readonly #pings = new Pings();
  #over: Error | undefined;
  /** Total bytes received. */
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
    // HTTP/2 has no half-open connections, and a killed process often leaves only a FIN.
    socket.once('end', () => this.#end(new Error('connection closed')));
    if (socket.destroyed || socket.readableEnded) queueMicrotask(() => this.#end(new Error('connection closed')));
  }

  /** Total bytes written to the socket. */
  get bytesWritten(): number {
    return this.#sending.bytes;
  }

  /** Whether no new stream can be opened because one side is leaving. */
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
   * @throws TypeError for a head that HTTP/2 cannot carry; Error if the session is leaving or the other side accepts no more streams
   */
  request(head: OutgoingHead): Http2Stream {
    if (this.#over) throw this.#over;
    if (this.closed) throw new Error('session is closing');
    const stream = this.#streams.request(head);
    if (this.#streams.usedUp) this.#leave();
    return stream;
  }

  /** Sends a PING. @param done called on its answer; never if the session ends first */
  ping(done?: () => void): void {
    if (!this.#over && this.#pings.begin(done)) this.#sending.frame(pingFrame(Buffer.alloc(8), false));
  }

  /** Leaves gracefully: no new streams from either side, and the connection closes after the last one. */
  close(): void {
    if (this.closed || this.#over) return;
    this.#streams.refuseNew();
    this.#sending.frame(goawayFrame(this.#streams.last));
    this.#endWhenIdle();
  }

  /** Ends the connection and all open streams. */
  destroy(reason: Error = new Error('session was destroyed')): void {
    this.#end(reason);
  }

  /** No stream can be opened here any more: the other side is leaving, or the ids are used up. */
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

  /** The other side broke the protocol, or a listener threw. Sends a GOAWAY and closes the connection. */
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
    for (const stream of this.#streams.values()) this.#runGuarded(() => stream.lose(reason));
    const { socket } = this;
    socket.destroySoon();
    const timer = setTimeout(() => socket.destroy(), LINGER);
    socket.once('close', () => clearTimeout(timer));
    for (const listener of this.rawListeners('close')) this.#runGuarded(() => Reflect.apply(listener, this, [reason]));
  }

  /** The end of one stream, or one listener, that throws must not keep the others from theirs. */
  #runGuarded(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.emit('fault', error as Error);
    }
  }
}
