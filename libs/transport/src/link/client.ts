import { type ClientHttp2Session, type ClientHttp2Stream, constants } from 'node:http2';
import type { Socket } from 'node:net';
import {
  type Dial,
  DialError,
  type DialRequest,
  deferred,
  type Established,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { abandoned, expired } from '../given-up.ts';
import type { Wire } from '../wire.ts';
import { Control, type ControlMessage } from './control.ts';
import { endSession } from './ending.ts';
import { attemptOf, readAnswer, requestHead } from './head.ts';
import { watchLiveness } from './liveness.ts';
import { DiallingReconciler, RECONCILE_EVERY } from './reconcile.ts';
import { widen } from './settings.ts';
import { streamWindows } from './windows.ts';

export interface LinkClientOptions {
  readonly session: ClientHttp2Session;
  /** Under the session. Its end is noticed here first, so that tunnels end with the true reason. */
  readonly socket: Socket;
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  readonly receive?: (message: ControlMessage) => void;
  /** Told of a control message that could not be read and was passed over. */
  readonly refused?: (error: Error) => void;
  /** Told of a tunnel or dial that the other side did not end, or did not know, and that was ended here. */
  readonly orphaned?: () => void;
  /** How often both sides compare what they hold, in milliseconds; for tests. */
  readonly reconcileEvery?: number;
}

/**
 * The half of a link that dials: a gateway towards a hub, a hub towards an agent. It is the HTTP/2 client, whoever made the
 * connection.
 */
export class LinkClient implements Wire {
  readonly dial: Dial;
  readonly #closed = deferred<Error>();
  /** Resolves with the reason when the link has ended and all its tunnels with it. */
  readonly closed = this.#closed.promise;
  readonly #session: ClientHttp2Session;
  readonly #peer: string;
  readonly #control: Control;
  readonly #streams = new Map<ClientHttp2Stream, string>();
  /** The other side was asked to end them. */
  readonly #aborted = new WeakSet<ClientHttp2Stream>();
  /** Set once no new dial is taken: the reason. */
  #over: Error | undefined;

  constructor(options: LinkClientOptions) {
    const { session, socket, peer, receive = () => {}, refused = () => {}, reconcileEvery = RECONCILE_EVERY } = options;
    this.#session = session;
    this.#peer = peer;
    this.dial = (request) => this.#dial(request);
    widen(session);
    session.on('error', (error) => this.destroy(error));
    session.on('goaway', () => {
      this.#over ??= new Error(`${peer} goes away`);
    });
    session.once('close', () => this.destroy(new Error('link closed')));
    socket.prependOnceListener('close', () => this.destroy(new Error('connection closed')));
    // HTTP/2 knows no half-open connection: what a killed process leaves behind is a FIN, and often no more.
    socket.once('end', () => this.destroy(new Error('connection closed')));
    if (socket.destroyed || socket.readableEnded) queueMicrotask(() => this.destroy(new Error('connection closed')));
    const say = () => this.#control.send({ type: 'alive' });
    watchLiveness(session, socket, (error) => this.destroy(error), say);
    const stream = session.request({ ':method': 'POST', ':scheme': 'http', ':authority': 'link', ':path': '/control' });
    const reconciler = this.#reconciler(options);
    this.#control = new Control(stream, {
      receive: (message) => (message.type === 'lacking' ? reconciler.lacking(message.streams) : receive(message)),
      refused,
      fail: (error) => this.destroy(error),
    });
    const timer = setInterval(() => reconciler.round(), reconcileEvery);
    timer.unref();
    void this.closed.then(() => clearInterval(timer));
  }

  #reconciler({ peer, orphaned = () => {} }: LinkClientOptions): DiallingReconciler<ClientHttp2Stream> {
    return new DiallingReconciler({
      streams: () => this.#streams.keys(),
      aborted: (stream) => this.#aborted.has(stream),
      send: (message) => this.#control.send(message),
      arrived: (callback) => this.#control.send({ type: 'alive' }, () => this.#ping(callback)),
      end(stream) {
        orphaned();
        stream.close(constants.NGHTTP2_CANCEL);
        stream.destroy(new SessionLost(`${peer} has lost the tunnel`));
      },
    });
  }

  /** @param answered not called for a PING that is never sent: one too many, or on a session that closes */
  #ping(answered: () => void): void {
    if (!this.#session.destroyed) this.#session.ping((error) => error || answered());
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** @param line a control message from `encodeControl` */
  sendLine(line: string): void {
    this.#control.sendLine(line);
  }

  /** Whether it takes new dials. */
  get usable(): boolean {
    return this.#over === undefined;
  }

  /** Tells the other side that this one goes away, so that it gets another link first. Dials are still sent. */
  leave(): void {
    this.#control.send({ type: 'drain' });
  }

  /** Takes no new dial, lets running tunnels finish, then closes. Bounded by whoever calls `destroy` later. */
  close(): void {
    this.#over ??= new Error(`link to ${this.#peer} is closing`);
    if (!this.#session.destroyed) this.#session.close();
    if (this.#streams.size === 0) this.destroy(this.#over);
  }

  /** Ends the link and every tunnel on it, but for what of ended ones is still to be read. */
  destroy(reason: Error): void {
    const lost = new SessionLost(`${this.#peer}: ${reason.message}`, { cause: reason });
    this.#over ??= lost;
    endSession(this.#session, [...this.#streams.keys()], lost);
    this.#closed.resolve(lost);
  }

  #dial(request: DialRequest): Promise<Established> {
    return new Promise((resolve, reject) => {
      const stream = this.#request(request);
      const settle = (error?: DialError) => {
        clearTimeout(timer);
        request.signal.removeEventListener('abort', abandon);
        stream.off('close', closed);
        if (error) reject(error);
      };
      const giveUp = (error: DialError) => {
        settle(error);
        this.#abort(stream);
      };
      const abandon = () => giveUp(abandoned());
      const expire = () => giveUp(expired(request));
      const closed = () => settle(this.#lost(stream));
      const timer = setTimeout(expire, Math.max(0, request.deadline - performance.now()));
      request.signal.addEventListener('abort', abandon, { once: true });
      stream.once('close', closed);
      if (request.acknowledged) stream.on('headers', request.acknowledged);
      stream.once('response', (head) => {
        try {
          const answer = readAnswer(head);
          settle();
          resolve({ ...answer, end: this.#tunnelEnd(stream) });
        } catch (refusal) {
          settle(refusal as DialError);
          stream.resume().end();
        }
      });
      if (request.signal.aborted) abandon();
    });
  }

  #request(request: DialRequest): ClientHttp2Stream {
    if (this.#over) throw this.#unreachable(this.#over);
    let stream: ClientHttp2Stream;
    try {
      stream = this.#session.request(requestHead(request));
    } catch (error) {
      throw this.#unreachable(error as Error);
    }
    this.#streams.set(stream, attemptOf(request));
    streamWindows.opened(this.#session);
    // The splice has its own listener; this one holds before it comes and after it went.
    stream.on('error', () => {});
    stream.once('close', () => {
      this.#streams.delete(stream);
      streamWindows.closed(this.#session);
      if (this.#over && this.#streams.size === 0) this.destroy(this.#over);
    });
    return stream;
  }

  #tunnelEnd(stream: ClientHttp2Stream): TunnelEnd {
    return { stream, halfOpen: true, abort: () => this.#abort(stream) };
  }

  /** Asks the other side to reset the stream, which may do so as often as it likes; see `Control`. */
  #abort(stream: ClientHttp2Stream): void {
    if (stream.destroyed) return;
    this.#aborted.add(stream);
    const dial = this.#streams.get(stream);
    if (dial !== undefined) this.#control.send({ type: 'abort', dial });
    stream.removeAllListeners('data');
    stream.resume();
  }

  #unreachable(cause: Error): DialError {
    return new DialError('connection_terminated', `${this.#peer}: ${cause.message}`, { retryable: true, cause });
  }

  /** The stream ended without an answer, so nothing of the destination came to the caller. */
  #lost(stream: ClientHttp2Stream): DialError {
    if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM) return this.#unreachable(new Error('dial refused'));
    return this.#unreachable(this.#over ?? new Error('session lost before the answer'));
  }
}
