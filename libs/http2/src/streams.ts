import { ClientIds } from './client-ids.ts';
import { ConnectionError, ErrorCode, MAX_WINDOW } from './codes.ts';
import { headersFrames, rstStreamFrame, windowUpdateFrame } from './frames.ts';
import { encodeHead, type OutgoingHead } from './head.ts';
import { Incoming } from './incoming.ts';
import { OpenTable } from './open-table.ts';
import { ReceiveWindow } from './receive-window.ts';
import { ResetCounter } from './reset-counter.ts';
import { beginsMessage, type Field } from './section.ts';
import { InitialWindow, SendWindow } from './send-window.ts';
import type { Sending } from './sending.ts';
import { DEFAULT_SETTINGS, type Settings } from './settings.ts';
import { Http2Stream } from './stream.ts';
import type { StreamOwner } from './stream-owner.ts';

/**
 * Most streams in 10 seconds that the other side may cancel before the answer, break, or have refused. A gateway that loses its callers
 * cancels its pending dials, which are bounded to 2,000 for each tenant.
 */
const MAX_RESETS = 10_000;

export interface StreamsOptions {
  readonly role: 'client' | 'server';
  /** What the other side may do. */
  readonly settings: Pick<Settings, 'initialWindowSize' | 'maxConcurrentStreams'>;
  readonly sending: Sending;
  /** The connection's round-trip time, in milliseconds. */
  readonly rtt: () => number;
  /** Called when the last open stream has ended. */
  readonly idle: () => void;
}

/**
 * The open streams of a connection by id, and the rules for new ones (RFC 9113 section 5.1). Only the client opens streams, with odd
 * ids. This class extends the table instead of holding one, because every frame looks up its stream.
 */
export class Streams extends OpenTable<number, Http2Stream> implements StreamOwner {
  /** Resets that the other side caused: requests that it cancelled or that were refused, and its errors. Our own resets do not count. */
  readonly resets = new ResetCounter(MAX_RESETS);
  readonly #options: StreamsOptions;
  readonly #sending: Sending;
  /** What this side may do. */
  #peer = DEFAULT_SETTINGS;
  readonly #initialWindow = new InitialWindow(
    () => this.#sending.runGuarded(() => this.#wake()),
    () => Array.from(this.values(), ({ sendWindow }) => sendWindow),
  );
  #next = 1;
  /** What the other side opened. */
  readonly #ids = new ClientIds();
  /** The lowest last stream id of all GOAWAYs. */
  #lastSeen = Number.POSITIVE_INFINITY;
  /** No new stream is opened, by either side. */
  #refusesNew = false;

  constructor(options: StreamsOptions) {
    super();
    this.#options = options;
    this.#sending = options.sending;
  }

  /** The highest stream id that the other side opened, for GOAWAY. */
  get last(): number {
    return this.#ids.last;
  }

  get refusesNew(): boolean {
    return this.#refusesNew;
  }

  /** No id is left for another stream. */
  get usedUp(): boolean {
    return this.#next > MAX_WINDOW;
  }

  /** Stops new streams, both our own and the other side's. */
  refuseNew(): void {
    this.#refusesNew = true;
  }

  /**
   * Opens the client's next.
   * @throws TypeError for a head that HTTP/2 cannot carry; Error when the other side takes no more streams
   */
  request(head: OutgoingHead): Http2Stream {
    const most = this.#peer.maxConcurrentStreams;
    if (this.size >= most) throw new Error(`the other side takes no more than ${most} streams`);
    const block = encodeHead(head);
    const stream = this.#open(this.#next, Incoming.response());
    this.#next += 2;
    this.#sendHead(stream.id, block, false);
    return stream;
  }

  /**
   * Whether a head begins a new stream. Its id then counts as used.
   * @throws ConnectionError for an id that is not a client's
   */
  begins(id: number): boolean {
    return this.#options.role === 'server' && this.#ids.begins(id);
  }

  /** Opens a stream that the other side began. @returns undefined if it is refused */
  accept(id: number, section: readonly Field[]): Http2Stream | undefined {
    const request = Incoming.request(section);
    const full = this.#refusesNew || this.size >= this.#options.settings.maxConcurrentStreams;
    if (request && !full) return this.#open(id, request.incoming);
    this.#refuse(id, request ? ErrorCode.REFUSED_STREAM : ErrorCode.PROTOCOL_ERROR);
    return undefined;
  }

  #refuse(id: number, code: number): void {
    this.resets.count();
    this.#sending.frame(rstStreamFrame(id, code));
  }

  #open(id: number, incoming: Incoming): Http2Stream {
    const { settings, rtt } = this.#options;
    const window = new ReceiveWindow(settings.initialWindowSize, rtt);
    const stream = new Http2Stream(id, this, { incoming, window, sendWindow: new SendWindow(this.#initialWindow) });
    this.set(id, stream);
    return stream;
  }

  /**
   * The stream; undefined if it has closed, since its frames may still be in transit.
   * @throws ConnectionError for one that was never opened
   */
  known(id: number, frame: string): Http2Stream | undefined {
    const stream = this.get(id);
    if (stream) return stream;
    const opened = this.#options.role === 'client' ? id < this.#next && id % 2 === 1 : this.#ids.used(id);
    if (id === 0 || !opened) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `${frame} on stream ${id}`);
    return undefined;
  }

  /** Applies the other side's settings, also to the windows of open streams (section 6.9.2). */
  adopt(settings: Partial<Settings>): void {
    this.#peer = { ...this.#peer, ...settings };
    this.#sending.maxFrame = this.#peer.maxFrameSize;
    this.#initialWindow.resize(this.#peer.initialWindowSize);
  }

  #wake(): void {
    for (const stream of this.values()) if (stream.sendable) this.offer(stream);
  }

  receiveReset(id: number, code: number): void {
    const stream = this.known(id, 'RST_STREAM');
    if (this.#options.role === 'server' && stream?.headersSent === false) this.resets.count();
    stream?.receiveReset(code);
  }

  /** DATA arrived for a closed stream: an error if the other side had ended the stream, otherwise sent before it knew. */
  late(id: number): void {
    if (this.#ids.hasEnded(id)) this.#refuse(id, ErrorCode.STREAM_CLOSED);
  }

  /** The same for a header section. @throws ConnectionError for a request, because a request cannot follow an open stream */
  lateSection(id: number, section: readonly Field[]): void {
    if (this.#options.role === 'server' && beginsMessage(section)) throw this.#ids.again(id);
    this.late(id);
  }

  /** The other side is leaving, and has not processed our streams after this one: they may be retried elsewhere (section 6.8). */
  refusedAfter(last: number): void {
    if (this.#options.role === 'server' || last >= this.#lastSeen) return;
    this.#lastSeen = last;
    for (const stream of this.values()) if (stream.id > last) stream.receiveReset(ErrorCode.REFUSED_STREAM);
  }

  // What a stream says.

  offer(stream: Http2Stream): void {
    this.#sending.offer(stream);
  }

  emptied(stream: Http2Stream): void {
    this.#sending.emptied(stream);
  }

  head({ id }: Http2Stream, head: OutgoingHead, endStream: boolean): void {
    this.#sendHead(id, encodeHead(head), endStream);
  }

  credit({ id }: Http2Stream, bytes: number): void {
    this.#sending.frame(windowUpdateFrame(id, bytes));
  }

  broken(): void {
    this.resets.count();
  }

  reset({ id }: Http2Stream, code: number): void {
    this.#sending.frame(rstStreamFrame(id, code));
  }

  ended({ id, remoteEnded }: Http2Stream): void {
    if (remoteEnded) this.#ids.ended(id);
    this.delete(id);
    if (this.size === 0) this.#options.idle();
  }

  #sendHead(id: number, block: Buffer, endStream: boolean): void {
    for (const frame of headersFrames(id, block, endStream, this.#sending.maxFrame)) this.#sending.frame(frame);
  }
}
