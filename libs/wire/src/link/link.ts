import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { type Config, WIRE } from '../defaults.ts';
import { Connection, greeting, type PeerSettings } from '../http2/connection.ts';
import { DuplexStream } from '../http2/duplex.ts';
import { encodeHead, type Head, headOf, type OutgoingHead } from '../http2/heads.ts';
import type { Http2Stream } from '../http2/stream.ts';
import type { StreamRules } from '../http2/streams.ts';

export interface Http2LinkOptions {
  readonly role: 'client' | 'server';
  /** Connected, after the TLS handshake. The link owns it from now on. */
  readonly socket: Socket;
  /** Times, sizes and counts. Default: `WIRE`. */
  readonly config?: Partial<Config>;
  /** Default: both sides are trusted, and may cancel many requests at once. */
  readonly rules?: Partial<StreamRules>;
  /** Makes the error that open streams get when the link ends. Default: the reason itself. */
  readonly lost?: (reason: Error) => Error;
}

interface Http2LinkEvents {
  /** At the server: the other side opened a stream, which needs a handler at once. */
  begun: [stream: Http2Stream, head: Head];
  /** The same as a Duplex, if nobody listens to `begun`. */
  stream: [stream: DuplexStream, head: Head];
  /** No new stream can be opened, because the other side is leaving or the ids are used up. Open streams continue. */
  goaway: [];
  /** A listener threw. That is a bug in the listener, and it ends the link. */
  fault: [error: Error];
  /** The link has ended, with all its streams. */
  close: [reason: Error];
}

function opening(role: Http2LinkOptions['role'], config: Config) {
  const settings: PeerSettings = {
    initialWindowSize: config.windowBytes,
    maxConcurrentStreams: config.streams,
    maxFrameSize: config.frameBytes,
    maxHeaderListSize: config.headBytes,
  };
  return { settings, greeting: greeting(role, settings) };
}

/** Shared by all links: a small buffer that lives as long as a link keeps the whole 64 KiB that it was cut from. */
const USUAL = { client: opening('client', WIRE), server: opening('server', WIRE) };

/** One side of a connection whose streams are Duplexes, as links use it. */
export class Http2Link extends EventEmitter<Http2LinkEvents> {
  readonly socket: Socket;
  readonly #connection: Connection;
  readonly #groupField: string | undefined;
  #over: Error | undefined;

  constructor({ role, socket, config: given, rules, lost = (reason) => reason }: Http2LinkOptions) {
    super();
    const config = given ? { ...WIRE, ...given } : WIRE;
    this.socket = socket;
    this.#groupField = rules?.groupField;
    this.#connection = new Connection(socket, {
      role,
      config,
      ...(config === WIRE ? USUAL[role] : opening(role, config)),
      rules: { maxResets: config.resets, countsAnswered: false, abandonsRequests: false, ...rules },
      maxBacklog: config.backlogBytes,
      defer: setImmediate,
      latePongs: false,
      lost,
      opened: (stream, request) => this.#opened(stream, headOf(request)),
      goaway: (reason) => (reason ? this.destroy(reason) : this.#leave()),
      fault: (error) => this.emit('fault', error),
      ended: (reason) => this.#ended(reason),
    });
    this.ping();
    this.#connection.start();
  }

  get bytesRead(): number {
    return this.#connection.bytesRead;
  }

  /** Total bytes written to the socket. */
  get bytesWritten(): number {
    return this.#connection.bytesWritten;
  }

  /** The round-trip time that PINGs measure, in milliseconds; 0 until it is known. */
  get rtt(): number {
    return this.#connection.rtt;
  }

  /** Whether no new stream can be opened because one side is leaving. */
  get closed(): boolean {
    return this.#connection.leaving;
  }

  get destroyed(): boolean {
    return this.#connection.ended;
  }

  /** Streams that are open on the wire. */
  get open(): number {
    return this.#connection.open;
  }

  /** As `begin`, but the stream is a Duplex from the beginning. */
  request(head: OutgoingHead): DuplexStream {
    return new DuplexStream(this.begin(head));
  }

  /**
   * Opens a stream, which needs a handler at once; for the client.
   * @throws TypeError for a head that HTTP/2 cannot carry; Error if the link is leaving or the other side accepts no more streams
   */
  begin(head: OutgoingHead): Http2Stream {
    if (this.#over) throw this.#over;
    if (this.closed) throw new Error('link is closing');
    const group = this.#groupField === undefined ? undefined : head[this.#groupField];
    const stream = this.#connection.request(encodeHead(head), group as string | undefined);
    if (this.#connection.usedUp) this.#leave();
    return stream;
  }

  /** Sends a PING. @param done called on its answer; never if the link ends first */
  ping(done?: () => void): void {
    this.#connection.ping(done);
  }

  /** Leaves gracefully: no new streams from either side, and the connection closes after the last one. */
  close(): void {
    this.#connection.leave();
  }

  /** Ends the connection and all open streams. */
  destroy(reason: Error = new Error('link was destroyed'), told = false): void {
    this.#connection.destroy(reason, told);
  }

  #opened(stream: Http2Stream, head: Head): void {
    if (!this.emit('begun', stream, head)) this.emit('stream', new DuplexStream(stream), head);
  }

  /** No stream can be opened here any more: the other side is leaving, or the ids are used up. */
  #leave(): void {
    if (!this.closed) this.emit('goaway');
    this.close();
  }

  /** Even if one listener throws, the others are called. */
  #ended(reason: Error): void {
    this.#over = reason;
    for (const listener of this.rawListeners('close'))
      this.#connection.guarded(() => Reflect.apply(listener, this, [reason]))();
  }
}
