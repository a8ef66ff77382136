import type { Socket } from 'node:net';
import {
  ConnectionError,
  DEFAULT_SETTINGS,
  ErrorCode,
  goawayFrame,
  MAX_WINDOW,
  pingFrame,
  type Settings,
  settingsAck,
  settingsFrame,
  windowUpdateFrame,
} from '@isthmus/http2';
import { type PlaneEnded, planeEnded } from '@isthmus/tunnel';
import { type ConnectionSink, Inbound, MAX_FIELDS } from './inbound.ts';
import { Keepalive } from './keepalive.ts';
import { Output } from './output.ts';
import { type PeerLimits, Streams, type StreamsOptions, type StreamsOwner } from './streams.ts';

/** What may wait for a peer that asks (PING, SETTINGS, streams that are refused) and does not read, in bytes. */
const MAX_BACKLOG = 1024 * 1024;

/** How long a peer may take to read our GOAWAY and close before it is cut off, in milliseconds. */
const LINGER_MS = 1_000;

/** How long a peer may take to read what its last stream still had to say, in milliseconds. */
const FLUSH_MS = 20_000;

const SETTINGS_ACK = settingsAck();

export interface ConnectionOptions extends StreamsOptions {
  /** Our first words, which say what the peer may do. */
  readonly greeting: Buffer;
  /** How long a peer may be silent before it is pinged, in milliseconds. */
  readonly keepaliveMs: number;
  /** The peer broke the protocol, or did not answer a PING: the connection ends. */
  readonly failed: (error: Error) => void;
  /** Code of ours threw: the connection ends. */
  readonly fault: (error: Error) => void;
  readonly closed: () => void;
}

/**
 * `greeting` until the SETTINGS of both; `open`; `leaving` once our GOAWAY went out, until the last stream ends; `ended` when
 * nothing is read or sent any more.
 */
type State = 'greeting' | 'open' | 'leaving' | 'ended';

/** HTTP/2's server side on one socket (RFC 9113), made for few streams a connection and cheap to begin and to end. */
export class ServerConnection implements ConnectionSink, StreamsOwner {
  readonly #socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #output: Output;
  readonly #streams: Streams;
  readonly #inbound: Inbound;
  readonly #keepalive: Keepalive;
  #state: State = 'greeting';
  #linger: NodeJS.Timeout | undefined;

  constructor(socket: Socket, options: ConnectionOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#output = new Output(socket, (error) => this.#fail(error));
    this.#streams = new Streams(this.#output, options, this);
    this.#inbound = new Inbound(this, this.#streams, this.#output.floods);
    this.#keepalive = new Keepalive({
      keepaliveMs: options.keepaliveMs,
      ping: () => this.#output.add(pingFrame(Buffer.alloc(8), false)),
      dead: (error) => this.#fail(new ConnectionError(ErrorCode.NO_ERROR, error.message)),
      guarded: this.#output.guarded,
    });
    // HTTP/2 knows no half-open connection: what a killed process leaves behind is a FIN.
    socket.once('end', () => socket.destroy());
    const closed = this.#output.guarded(() => this.#closed());
    socket.once('close', closed);
    if (socket.destroyed) queueMicrotask(closed);
  }

  /** Begins to read. @param first what came before */
  start(first?: Buffer): void {
    if (first) this.#read(first);
    if (this.#state === 'greeting') this.#keepalive.awaitGreeting();
    this.#socket.on('data', (chunk: Buffer) => this.#read(chunk)).resume();
  }

  /** The peer may do more from now on. */
  allow(limits: PeerLimits): void {
    if (this.#state === 'ended') return;
    const { streamWindow: initialWindowSize, maxStreams: maxConcurrentStreams } = limits;
    this.#output.add(settingsFrame({ initialWindowSize, maxConcurrentStreams }));
    this.#streams.allow(limits);
  }

  /** Takes no new stream and lets those that run finish. */
  leave(): void {
    if (this.#state === 'leaving' || this.#state === 'ended') return;
    if (this.#state === 'greeting') this.#greet();
    this.#state = 'leaving';
    this.#streams.close();
    this.#goaway(ErrorCode.NO_ERROR);
    if (this.#streams.size === 0) this.#end();
  }

  /** Cuts the connection and every stream on it. */
  destroy(reason: PlaneEnded): void {
    this.#output.flush();
    this.#endStreams(reason);
    this.#socket.destroy();
  }

  // What the peer says.

  #read(chunk: Buffer): void {
    if (this.#state === 'ended') return;
    this.#keepalive.heard();
    try {
      this.#inbound.read(chunk);
      this.#checkLimits();
    } catch (error) {
      this.#fail(error as Error);
    }
  }

  #checkLimits(): void {
    this.#streams.resets.check();
    if (this.#output.backlog <= MAX_BACKLOG) return;
    throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'peer asks for more than it reads');
  }

  settings({ initialWindowSize, maxFrameSize }: Partial<Settings>): void {
    if (this.#state === 'greeting') {
      this.#greet();
      this.#state = 'open';
      this.#keepalive.greeted();
    }
    this.#output.add(SETTINGS_ACK);
    if (maxFrameSize !== undefined) this.#output.maxFrame = maxFrameSize;
    if (initialWindowSize !== undefined) this.#streams.resize(initialWindowSize);
  }

  ping(payload: Buffer): void {
    this.#output.addPatiently(pingFrame(payload, true));
  }

  /** Our SETTINGS wait for the peer's, which come unasked: one write answers them, and the peer is woken once. */
  #greet(): void {
    this.#output.add(this.#options.greeting);
  }

  // How it ends.

  idle(): void {
    if (this.#state === 'leaving') this.#end();
  }

  #goaway(code: number): void {
    this.#output.add(goawayFrame(this.#streams.last, code));
  }

  /** The peer broke the protocol, or code of ours threw. Subscribers always hear of it, and last, because they may throw too. */
  #fail(error: Error): void {
    const ofPeer = error instanceof ConnectionError;
    const isOver = this.#state === 'ended';
    if (this.#state === 'greeting') this.#greet();
    if (!isOver) {
      this.#goaway(ofPeer ? error.code : ErrorCode.INTERNAL_ERROR);
      this.#end(LINGER_MS, ofPeer ? error : planeEnded(error));
    }
    if (!ofPeer) this.#options.fault(error);
    else if (!isOver) this.#output.guarded(this.#options.failed)(error);
  }

  /**
   * @param patience how long what was written may take to leave, in milliseconds
   * @param reason what its streams are told
   */
  #end(patience = FLUSH_MS, reason?: Error): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#cutAfter(patience);
    this.#socket.once('finish', () => this.#cutAfter(LINGER_MS));
    this.#output.end();
    this.#endStreams(reason);
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

  #endStreams(reason?: Error): void {
    this.#keepalive.stop();
    this.#streams.end(reason);
  }
}

/** The window of the whole connection exceeds the sum of its streams', or one that stalls would stop the rest. */
export function greeting(limits: PeerLimits): Buffer {
  const { streamWindow: initialWindowSize, maxStreams: maxConcurrentStreams } = limits;
  return Buffer.concat([
    settingsFrame({ initialWindowSize, maxConcurrentStreams, maxHeaderListSize: MAX_FIELDS }),
    windowUpdateFrame(0, MAX_WINDOW - DEFAULT_SETTINGS.initialWindowSize),
  ]);
}
