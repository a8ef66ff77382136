import { OpenTable } from '@isthmus/runtime';
import { type Config, WIRE } from '../defaults.ts';
import { ResetCounter } from './floods.ts';
import {
  ConnectionError,
  DEFAULT_FRAME,
  DEFAULT_SETTINGS,
  ErrorCode,
  headersFrames,
  MAX_WINDOW,
  rstStreamFrame,
  type Settings,
} from './frames.ts';
import { beginsMessage, contentOf, type Field, type ReceivedHead } from './heads.ts';
import { hpackEncode } from './hpack.ts';
import { Incoming, type WindowGrowth } from './incoming.ts';
import { type Output, SendGroup } from './output.ts';
import { Http2Stream, type StreamOwner } from './stream.ts';

/** The ids of the streams that a client opened, as its server tracks them (RFC 9113 sections 5.1 and 5.1.1). */
export class ClientIds {
  #last = 0;
  #count = 0;
  readonly #ended: number[] = [];
  #next = 0;
  readonly #remembered: number;

  constructor({ rememberedEnds }: Config = WIRE) {
    this.#remembered = rememberedEnds;
  }

  /** The highest; 0 before the first. */
  get last(): number {
    return this.#last;
  }

  /**
   * Records a request. @returns whether its stream is new; its id then counts as used
   * @throws ConnectionError for an id that is not a client's
   */
  begins(id: number): boolean {
    if (id % 2 === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `stream ${id} is not a client's`);
    if (id <= this.#last) return false;
    this.#last = id;
    this.#count++;
    return true;
  }

  /** Whether a stream was ever opened or skipped. */
  used(id: number): boolean {
    return id <= this.#last;
  }

  /** The error for a request on a stream that has ended or was skipped. It cannot be a late frame: a request comes first. */
  again(id: number): ConnectionError {
    const noneSkipped = this.#count === (this.#last + 1) / 2;
    const code = noneSkipped ? ErrorCode.STREAM_CLOSED : ErrorCode.PROTOCOL_ERROR;
    return new ConnectionError(code, `a request on stream ${id}, which has ended`);
  }

  /** Records that the peer ended or reset a stream that is now closed. */
  ended(id: number): void {
    this.#ended[this.#next] = id;
    this.#next = (this.#next + 1) % this.#remembered;
  }

  /** Whether the peer is known to have ended a stream. */
  hasEnded(id: number): boolean {
    return this.#ended.includes(id);
  }
}

/** RFC 6585 section 5. */
const TOO_LONG = hpackEncode([[':status', '431']]);

/** How streams are treated by those who use the connection. */
export interface StreamRules {
  /** Whether a request counts as reset, too, that is cancelled after its answer. A tunnel does not: opening it cost a dial. Default false. */
  readonly countsAnswered?: boolean;
  /** See `StreamOwner`. Default false. */
  readonly abandonsRequests?: boolean;
  /** The field of a request that names its stream's group. Groups get equal shares of the connection. Default: there is one group. */
  readonly groupField?: string;
  /** How receive windows grow. Default: as far as the path can use them. */
  readonly growth?: WindowGrowth;
}

interface StreamsOptions {
  readonly role: 'client' | 'server';
  readonly rules: StreamRules;
  readonly output: Output;
  /** The connection's round-trip time, in milliseconds. */
  readonly rtt: () => number;
  /** Called when the other side opened a stream, which needs a handler at once. */
  readonly opened: (stream: Http2Stream, request: readonly Field[]) => void;
  /** Called when a request's head was longer than it may be, and was answered. */
  readonly longHead?: (() => void) | undefined;
  /** Called when the last open stream has ended. */
  readonly idle: () => void;
}

/**
 * The open streams of a connection by id, and the rules for new ones (RFC 9113 section 5.1). Only the client opens streams, with odd
 * ids. This class extends the table instead of holding one, because every frame looks up its stream.
 */
export class Streams extends OpenTable<number, Http2Stream> implements StreamOwner {
  readonly resets: ResetCounter;
  readonly output: Output;
  readonly abandonsRequests: boolean;
  /** Until the other side has read our SETTINGS, it may know only the first window of each stream (section 6.9.2). */
  excess: number;
  readonly #options: StreamsOptions;
  /** What this side may do. */
  #maxOwn = DEFAULT_SETTINGS.maxConcurrentStreams;
  /** What it may send on a new stream, in bytes. */
  #sendWindow = DEFAULT_SETTINGS.initialWindowSize;
  /** The groups of open streams, by name. */
  readonly #groups = new Map<string | undefined, SendGroup>();
  #firstGroup: string | undefined;
  #next = 1;
  /** What the other side opened. */
  readonly #ids: ClientIds;
  #lastServed = 0;
  /** The lowest last stream id of all GOAWAYs. */
  #lastSeen = Number.POSITIVE_INFINITY;
  /** No new stream is opened, by either side. */
  #refusesNew = false;

  constructor(options: StreamsOptions) {
    super();
    this.#options = options;
    this.output = options.output;
    this.abandonsRequests = options.rules.abandonsRequests ?? false;
    const { config } = this.output;
    this.#ids = new ClientIds(config);
    this.resets = new ResetCounter(config);
    this.excess = Math.max(0, DEFAULT_SETTINGS.initialWindowSize - config.windowBytes);
  }

  /** The last stream that is served, for GOAWAY: the other side may try later ones elsewhere. */
  get last(): number {
    return this.#lastServed;
  }

  /** Stops new streams, both our own and the other side's. */
  refuseNew(): void {
    this.#refusesNew = true;
  }

  /** The connection is over. One stream whose end throws must not keep the others from theirs. */
  end(reason: Error): void {
    this.refuseNew();
    const lose = this.output.guarded((stream: Http2Stream) => stream.lose(reason));
    for (const stream of [...this.values()]) lose(stream);
  }

  /**
   * Opens the client's next, which needs a handler at once.
   * @throws Error when one side is leaving, or the other side accepts no more streams
   */
  request(head: Buffer, group?: string): Http2Stream {
    if (this.#refusesNew) throw new Error('link is closing');
    if (this.size >= this.#maxOwn) throw new Error(`the other side allows only ${this.#maxOwn} streams`);
    const stream = this.#open(this.#next, 'head', group);
    this.#next += 2;
    stream.headers(head);
    return stream;
  }

  #open(id: number, state: 'head' | 'body', name: string | undefined, content?: number): Http2Stream {
    const { rules, rtt } = this.#options;
    const { config } = this.output;
    // A link's own streams, such as its control stream, have no group name.
    this.#firstGroup ??= name;
    if (name !== undefined && name !== this.#firstGroup) this.output.share();
    const group = this.#groups.get(name) ?? new SendGroup(name, config);
    if (group.streams++ === 0) this.#groups.set(name, group);
    const incoming = new Incoming(state, { config, rtt, growth: rules.growth, group: name }, content);
    const stream = new Http2Stream(id, this, { incoming, sendWindow: this.#sendWindow, group });
    this.set(id, stream);
    this.output.floods.earned += config.floodEarnedByStream;
    return stream;
  }

  /**
   * Applies the other side's settings, also to the windows of open streams (section 6.9.2).
   * @throws ConnectionError if one of these would exceed the largest window
   */
  adopt({ maxConcurrentStreams, maxFrameSize, initialWindowSize }: Partial<Settings>): void {
    if (maxConcurrentStreams !== undefined) this.#maxOwn = maxConcurrentStreams;
    if (maxFrameSize !== undefined) this.output.maxFrame = maxFrameSize;
    if (initialWindowSize === undefined || initialWindowSize === this.#sendWindow) return;
    const more = initialWindowSize - this.#sendWindow;
    this.#sendWindow = initialWindowSize;
    for (const stream of this.values())
      if (!stream.widenSending(more))
        throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, `streams' windows beyond ${MAX_WINDOW}`);
  }

  // What the other side says.

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

  /** @throws ConnectionError for a head that no stream can have */
  receiveHead({ stream: id, fields, ends }: Omit<ReceivedHead, 'bytes'>): void {
    const isServer = this.#options.role === 'server';
    const open = this.get(id);
    // To read it has cost as much, whatever becomes of it.
    if (!fields && !open) this.resets.count();
    if (open) open.receiveSection(fields, ends);
    else if (isServer && this.#ids.begins(id)) this.#begin(id, fields, ends);
    // A request cannot follow an open stream.
    else if (isServer && fields && beginsMessage(fields)) throw this.#ids.again(id);
    else if (!this.known(id, 'HEADERS')) this.late(id);
  }

  /** Answers a request whose head is too long to be read to its end. What follows could not be read either, so the connection ends. */
  answerLong(id: number): void {
    if (this.#options.role === 'client' || this.#refusesNew || this.has(id) || !this.#ids.begins(id)) return;
    this.#lastServed = id;
    this.#answer(id, TOO_LONG, true);
  }

  #begin(id: number, fields: readonly Field[] | undefined, ends: boolean): void {
    // Our GOAWAY told the other side that nobody looks at this one.
    if (this.#refusesNew) return;
    this.#lastServed = id;
    if (!fields) {
      this.#answer(id, TOO_LONG, ends);
      this.#options.longHead?.();
      return;
    }
    const content = contentOf(fields);
    if (Number.isNaN(content)) this.#refuse(id, ErrorCode.PROTOCOL_ERROR);
    else if (this.size >= this.output.config.streams) this.#refuse(id, ErrorCode.REFUSED_STREAM);
    else {
      const { groupField } = this.#options.rules;
      let group: string | undefined;
      for (const field of fields) if (field[0] === groupField) group ??= field[1];
      const stream = this.#open(id, 'body', group, content);
      this.#options.opened(stream, fields);
      if (ends) stream.receiveEnd();
    }
  }

  /** Answers without a stream. */
  #answer(id: number, head: Buffer, ended: boolean): void {
    for (const frame of headersFrames(id, head, true, DEFAULT_FRAME)) this.output.frame(frame);
    // The rest of the request is not wanted (section 8.1).
    if (!ended) this.output.frame(rstStreamFrame(id, ErrorCode.NO_ERROR));
  }

  #refuse(id: number, code: number): void {
    this.resets.count();
    this.output.frame(rstStreamFrame(id, code));
  }

  /** A frame came for a closed stream: an error if the other side had ended the stream, otherwise sent before it knew. */
  late(id: number): void {
    if (this.#ids.hasEnded(id)) this.#refuse(id, ErrorCode.STREAM_CLOSED);
  }

  receiveReset(id: number, code: number): void {
    const stream = this.known(id, 'RST_STREAM');
    if (!stream) return;
    const { role, rules } = this.#options;
    const spared = stream.answered && !rules.countsAnswered;
    if (role === 'server' && !spared) this.resets.count();
    stream.receiveReset(code);
  }

  /** The other side is leaving, and has not processed our streams after this one: they may be retried elsewhere (section 6.8). */
  refusedAfter(last: number): void {
    if (this.#options.role === 'server' || last >= this.#lastSeen) return;
    this.#lastSeen = last;
    for (const stream of this.values()) if (stream.id > last) stream.receiveReset(ErrorCode.REFUSED_STREAM);
  }

  // What a stream says.

  streamBroken(): void {
    this.resets.count();
  }

  streamClosed({ id, group }: Http2Stream, byPeer: boolean): void {
    if (byPeer) this.#ids.ended(id);
    if (--group.streams === 0) this.#groups.delete(group.name);
    this.delete(id);
    if (this.size === 0) this.#options.idle();
  }
}
