import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { type Guarded, onRead, UnsentBound } from '@isthmus/runtime';
import type { Config } from '../defaults.ts';
import {
  ConnectionError,
  DEFAULT_FRAME,
  DEFAULT_SETTINGS,
  ErrorCode,
  goawayFrame,
  PREFACE,
  pingFrame,
  SETTINGS_ACK,
  settingsFrame,
  windowUpdateFrame,
} from './frames.ts';
import { encodeHead, type Field, type OutgoingHead } from './heads.ts';
import { Output } from './output.ts';
import { behindBulk, InFlight, Keepalive, Pings } from './pings.ts';
import { CONNECTION_WINDOW, Reading, type ReadingSink } from './reading.ts';
import type { Http2Stream } from './stream.ts';
import { type StreamRules, Streams } from './streams.ts';
import { ConnectionReads, closings, readBudget } from './ticks.ts';

/**
 * The other side has closed the connection. A write after that would fail with this code, and after a reset with another. All connections share
 * it: a gRPC caller closes one after each dial, and the stack of an error is a sixtieth of what that costs.
 */
const CLOSED = Object.assign(new Error('connection closed'), { code: 'EPIPE' });

/** Of those who are told by events instead: see `Http2Link`. */
type EventMap = Record<string, unknown[]>;

interface ConnectionOptions {
  readonly role: 'client' | 'server';
  /** Times, sizes and counts, also of what the other side may do. */
  readonly config: Config;
  /** From `greeting`. Leaves with our first frame. At a server, that is the answer to the peer's SETTINGS, so the peer wakes up once. */
  readonly greeting: Buffer;
  readonly rules: StreamRules;
  /** When frames leave that were sent in this tick of the event loop: `process.nextTick`, or `afterReads` if many sockets feed this one. */
  readonly defer: (flush: () => void) => void;
  /** Whether the answer to a PING may wait for bulk to leave with. */
  readonly latePongs: boolean;
  /** How long a peer may be silent before it is pinged, in milliseconds. Unset: no keepalive; links check their own liveness. */
  readonly keepaliveMs?: number;
  /** Makes the error that open streams get when the connection ends. @param isFault whether a callback of ours threw */
  readonly lost: (reason: Error, isFault: boolean) => Error;
  /** The other side opened a stream, which needs a handler at once. */
  readonly opened: (stream: Http2Stream, request: readonly Field[]) => void;
  /** A request's head was longer than it may be, and was answered. */
  readonly longHead?: (() => void) | undefined;
  /** No new stream can be opened here: the other side is leaving, gracefully or at once with a reason, or the ids are used up. */
  readonly goaway?: (reason?: Error) => void;
  /** The other side broke the protocol, or did not answer a PING, and the connection ends. */
  readonly failed?: (error: Error) => void;
  /** A callback of ours threw, and the connection ends. */
  readonly fault: (error: Error) => void;
  /** The connection and all its streams have ended; the last bytes may still be on their way. */
  readonly ended?: (reason: Error) => void;
  /** The socket has closed. */
  readonly closed?: () => void;
}

/** The first frames, which say what the other side may do. The connection's window is no limit: a stalled stream must not stop others. */
export function greeting(role: 'client' | 'server', { windowBytes, streams, frameBytes, headBytes }: Config): Buffer {
  const words = [
    settingsFrame({
      initialWindowSize: windowBytes,
      maxConcurrentStreams: streams,
      ...(frameBytes !== DEFAULT_FRAME && { maxFrameSize: frameBytes }),
      maxHeaderListSize: headBytes,
      ...(role === 'client' && { enablePush: false }),
    }),
    windowUpdateFrame(0, CONNECTION_WINDOW - DEFAULT_SETTINGS.initialWindowSize),
  ];
  return Buffer.concat(role === 'client' ? [PREFACE, ...words] : words);
}

/** What our PINGs carry. They are answered in order. */
const NOTHING = Buffer.alloc(8);

/**
 * `greeting` until the other side's SETTINGS arrive; `open`; `leaving` once our GOAWAY was sent, until the last stream ends; `ended` when
 * nothing is read or sent any more.
 */
type State = 'greeting' | 'open' | 'leaving' | 'ended';

/** A client's last stream has it (RFC 9113 section 5.1.1). */
const LAST_ID = 2 ** 31 - 1;

/**
 * One side of an HTTP/2 connection (RFC 9113), without server push and priorities, for links and for gRPC.
 *
 * It keeps reading even while it cannot write. Node's own endpoint stops reading during a write, so two of them that write much to
 * each other can deadlock (docs/adr/0002).
 */
export class Connection<Events extends EventMap = EventMap> extends EventEmitter<Events> implements ReadingSink {
  /** Total bytes received. */
  bytesRead = 0;
  /** Says with which others it is read in turns. */
  readonly reads = new ConnectionReads();
  /** Wraps callbacks of timers and promises: an error that they throw ends the connection. */
  readonly guarded: Guarded;
  readonly socket: Socket;
  readonly #options: ConnectionOptions;
  readonly #config: Config;
  readonly #output: Output;
  readonly #streams: Streams;
  readonly #reading: Reading;
  readonly #pings: Pings;
  readonly #keepalive: Keepalive | undefined;
  /** Why it has ended. */
  #over: Error | undefined;
  #state: State = 'greeting';
  #linger: NodeJS.Timeout | undefined;
  /** What was left for the next tick of the event loop. */
  #unread: Buffer | undefined;

  constructor(socket: Socket, options: ConnectionOptions) {
    super();
    const { role, config, greeting, rules, defer, opened, longHead, keepaliveMs } = options;
    this.socket = socket;
    this.#options = options;
    this.#config = config;
    const failed = (error: Error) => this.#fail(error);
    const unread = (): number => inFlight?.unread ?? Number.POSITIVE_INFINITY;
    const received = () => this.bytesRead;
    const pings = new Pings({ unread, received }, config);
    this.#pings = pings;
    const checkpoint = (read: () => void) => {
      pings.checkpoint(read);
      return pingFrame(NOTHING, false);
    };
    // Other programs' endpoints may count PINGs as abuse.
    const isLink = rules.groupField !== undefined;
    const inFlight: InFlight | undefined = isLink ? new InFlight(pings, config) : undefined;
    const unsent = isLink ? UnsentBound.of(socket) : undefined;
    const patience = options.latePongs ? { patience: behindBulk(config) } : {};
    const output = new Output({ config, socket, greeting, defer, ...patience, inFlight, unsent, checkpoint, failed });
    this.#output = output;
    this.guarded = output.guarded;
    const [rtt, idle] = [() => pings.rtt, () => this.#endWhenIdle()];
    this.#streams = new Streams({ role, rules, output, rtt, opened, longHead, idle });
    this.#reading = new Reading({ role, streams: this.#streams, output, sink: this });
    if (keepaliveMs !== undefined) {
      const dead = (error: Error) => this.#fail(new ConnectionError(ErrorCode.NO_ERROR, error.message));
      this.#keepalive = new Keepalive({ config, keepaliveMs, ping: () => this.ping(), dead, guarded: this.guarded });
    }
    const broken = this.guarded((error: Error) => this.#end(error, 0));
    socket.on('error', (error) => closings.add(() => broken(error)));
    const gone = this.guarded(() => this.#closed());
    const closed = () => closings.add(gone);
    // HTTP/2 has no half-open connections, and a killed process often leaves only a FIN.
    socket.once('end', () => this.#whenRead(() => socket.destroy()));
    socket.once('close', closed);
    if (socket.destroyed) queueMicrotask(closed);
    else if (socket.readableEnded) socket.destroy();
  }

  /** Total bytes written to the socket. */
  get bytesWritten(): number {
    return this.#output.bytes;
  }

  /** In milliseconds; 0 until it is known. */
  get rtt(): number {
    return this.#pings.rtt;
  }

  /** Whether no new stream can be opened, because one side is leaving. */
  get closed(): boolean {
    return this.#state === 'leaving' || this.#state === 'ended';
  }

  /** Whether it is over, with all its streams. */
  get destroyed(): boolean {
    return this.#state === 'ended';
  }

  /** Streams that are open. */
  get open(): number {
    return this.#streams.size;
  }

  /** Begins to read. @param first what came before */
  start(first?: Buffer): void {
    if (first) this.#read(first);
    if (this.#state === 'greeting') this.#keepalive?.awaitGreeting();
    onRead(this.socket, this.#read);
    if (!this.#unread) this.socket.resume();
  }

  /**
   * Opens a stream, which needs a handler at once; for the client.
   * @throws TypeError for a head that HTTP/2 cannot carry; Error if one side is leaving or the other accepts no more streams
   */
  begin(head: OutgoingHead): Http2Stream {
    if (this.#over) throw this.#over;
    const { goaway, rules } = this.#options;
    const group = rules.groupField === undefined ? undefined : head[rules.groupField];
    const stream = this.#streams.request(encodeHead(head), group as string | undefined);
    if (stream.id === LAST_ID) goaway?.();
    return stream;
  }

  /** The other side may have more streams, send more ahead on each, and have a longer backlog from now on. */
  allow(config: Config): void {
    if (this.#state === 'ended') return;
    const { windowBytes, streams } = config;
    const more = windowBytes - this.#output.config.windowBytes;
    this.#output.config = config;
    this.#output.frame(settingsFrame({ initialWindowSize: windowBytes, maxConcurrentStreams: streams }));
    this.#streams.excess = Math.max(0, this.#streams.excess - more);
    for (const stream of this.#streams.values()) stream.widenReceiving(more);
  }

  /** Sends a PING. @param done called on its answer; never if the connection ends first */
  ping(done?: () => void): void {
    if (this.#state !== 'ended' && this.#pings.begin(done)) this.#output.frame(pingFrame(NOTHING, false));
  }

  /** Leaves gracefully: no new streams from either side, and the connection closes after the last one. */
  close(): void {
    if (this.closed) return;
    this.#state = 'leaving';
    this.#streams.refuseNew();
    this.#goaway(ErrorCode.NO_ERROR);
    this.#endWhenIdle();
  }

  /**
   * Ends the connection and all open streams.
   * @param told whether the other side hears the reason; it then drops what it has not read yet
   */
  destroy(reason: Error = new Error('link was destroyed'), told = false): void {
    if (told && this.#state !== 'ended')
      this.#goaway(ErrorCode.CANCEL, reason.message.slice(0, this.#config.reasonChars));
    else if (!this.closed) this.#goaway(ErrorCode.NO_ERROR);
    if (this.#state === 'ended') this.#cutAfter(this.#config.lingerMs);
    else this.#end(reason, this.#config.lingerMs);
  }

  // What the other side says.

  readonly #read = (chunk: Buffer): void => {
    if (this.#state === 'ended') return;
    this.bytesRead += chunk.length;
    if (this.#keepalive) this.#keepalive.heard = true;
    if (this.#unread) {
      this.#unread = Buffer.concat([this.#unread, chunk]);
      return;
    }
    // A record of TLS may hold a byte, and each comes by itself.
    const rests = readBudget.count(this.reads, Math.max(chunk.length, this.#config.frameReadBytes));
    const left = this.#readFrames(chunk);
    if (rests || left) this.#rest(left);
  };

  #readFrames(chunk: Buffer): Buffer | undefined {
    try {
      return this.#reading.read(chunk);
    } catch (error) {
      this.#fail(error as Error);
      return undefined;
    }
  }

  /** Lets other connections be read before this one. @param left what it has read of its socket already */
  #rest(left?: Buffer): void {
    this.socket.pause();
    this.#unread = left;
    readBudget.rest(this.reads, () => {
      const unread = this.#unread;
      this.#unread = undefined;
      const more = unread && this.#readFrames(unread);
      if (more) this.#rest(more);
      else {
        readBudget.expect();
        this.socket.resume();
      }
    });
  }

  /** Calls back when nothing is left for a later tick: what came before a FIN counts. */
  #whenRead(then: () => void): void {
    if (this.#unread) setImmediate(() => this.#whenRead(then));
    else then();
  }

  onSettings(): void {
    if (this.#state === 'greeting') {
      this.#state = 'open';
      this.#keepalive?.watch();
    }
    this.#output.frame(SETTINGS_ACK);
  }

  onPing(opaque: Buffer): void {
    const answer = pingFrame(opaque, true);
    if (this.#options.latePongs) this.#output.lateFrame(answer);
    else this.#output.frame(answer);
  }

  onPong(): void {
    this.#pings.answered();
  }

  onGoaway(reason?: Error): void {
    this.#options.goaway?.(reason);
  }

  // How it ends.

  #goaway(code: number, text?: string): void {
    this.#output.frame(goawayFrame(this.#streams.last, code, text));
  }

  #endWhenIdle(): void {
    if (this.#state === 'leaving' && this.#streams.size === 0)
      this.#end(new Error('session closed'), this.#config.flushMs);
  }

  /** The other side broke the protocol, or code of ours threw. Subscribers hear of it last, because they may throw too. */
  #fail(error: Error): void {
    const ofPeer = error instanceof ConnectionError;
    if (this.#state !== 'ended') {
      if (ofPeer) this.#goaway(error.code, error.message);
      else this.#goaway(ErrorCode.INTERNAL_ERROR);
      this.#end(error, this.#config.lingerMs, !ofPeer);
      if (ofPeer) this.guarded(() => this.#options.failed?.(error))();
    }
    if (!ofPeer) this.#options.fault(error);
  }

  /** @param patience how long the last bytes may take to leave, in milliseconds; 0 if the other side reads no more */
  #end(cause: Error, patience: number, isFault = false): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#reading.stop();
    this.#keepalive?.stop();
    if (patience > 0) {
      this.#cutAfter(patience);
      this.socket.once('finish', () => this.#cutAfter(this.#config.lingerMs));
      this.guarded(() => this.#output.end())();
    } else this.socket.destroy();
    const reason = this.#options.lost(cause, isFault);
    this.#over = reason;
    this.#streams.end(reason);
    this.#options.ended?.(reason);
  }

  #cutAfter(ms: number): void {
    clearTimeout(this.#linger);
    if (!this.socket.destroyed) this.#linger = setTimeout(() => this.socket.destroy(), ms);
  }

  #closed(): void {
    clearTimeout(this.#linger);
    this.#end(CLOSED, 0);
    this.#output.stop();
    this.#options.closed?.();
  }
}
