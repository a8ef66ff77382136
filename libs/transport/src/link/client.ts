import type { Socket } from 'node:net';
import { type DuplexStream, ErrorCode, type Head, type Http2Session } from '@isthmus/http2';
import { deferred, type Guarded, guarding, RandomSet } from '@isthmus/runtime';
import { asDialError, type Dial, DialError, type DialRequest, type Established, SessionLost } from '@isthmus/tunnel';
import type { Dialer } from '../dial/dialer.ts';
import { Ending } from '../dial/ending.ts';
import { abandoned, type PendingDial, pendingDial } from '../dial/pending-dial.ts';
import { reasonOf } from '../head/percent.ts';
import { WHY_FIELD } from '../listen/turn-away.ts';
import { Control, type ControlMessage } from './control.ts';
import { readAnswer, requestHead } from './head.ts';
import { watchLiveness } from './liveness.ts';
import type { PolicyRules } from './policy.ts';
import { DiallingReconciler, RECONCILE_EVERY } from './reconcile.ts';
import { linkSession } from './settings.ts';
import { endOfStream } from './tunnel-end.ts';

export interface LinkClientOptions {
  readonly socket: Socket;
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  readonly receive?: (message: ControlMessage) => void;
  /** Called for a control message that could not be read and was skipped. */
  readonly refused?: (error: Error) => void;
  /** Called for a defect of ours that ended the link. */
  readonly fault?: (error: Error) => void;
  /** Called for a tunnel or dial that was ended because the other side did not know it. */
  readonly orphaned?: () => void;
  /** See `watchLiveness`. Both sides must agree on it. */
  readonly pingInterval?: number | undefined;
  /** How often both sides compare their streams, in milliseconds; for tests. */
  readonly reconcileEvery?: number;
}

/**
 * The dialling half of a link: a gateway towards a hub, a hub towards an agent. It is the HTTP/2 client, whichever side made the
 * connection.
 */
export class LinkClient implements Dialer {
  readonly dial: Dial;
  readonly closed: Promise<Error>;
  readonly #answered = deferred<void>();
  /** Resolves when the other side has accepted the link. */
  readonly answered = this.#answered.promise;
  readonly #session: Http2Session;
  readonly #guarded: Guarded;
  readonly #peer: string;
  readonly #control: Control;
  readonly #streams = new RandomSet<DuplexStream>();
  readonly #ending: Ending;

  constructor(options: LinkClientOptions) {
    const { socket, peer, receive = () => {}, refused = () => {}, reconcileEvery = RECONCILE_EVERY } = options;
    const session = linkSession('client', socket, peer);
    this.#session = session;
    this.#peer = peer;
    // An idle control stream does not keep the link.
    const ending = new Ending({ peer, open: () => this.open, end: (reason) => this.destroy(reason) });
    this.#ending = ending;
    this.closed = ending.closed;
    this.dial = async (request) => this.#dial(request);
    const fault = (error: Error) => {
      this.destroy(error);
      options.fault?.(error);
    };
    this.#guarded = guarding(fault);
    session.on('fault', fault);
    session.once('goaway', () => ending.refuseDials(new Error(`${peer} is closing the link`)));
    session.once('close', (reason) => ending.over(reason));
    watchLiveness(session, (error) => this.destroy(error), { interval: options.pingInterval });
    const stream = session.request({ ':method': 'POST', ':scheme': 'http', ':authority': 'link', ':path': '/control' });
    stream.once('close', () => this.destroy(new Error('control stream ended')));
    stream.once('response', (head: Head) => {
      const why = head[WHY_FIELD];
      if (why === undefined) this.#answered.resolve();
      else this.destroy(new Error(`it refuses this link: ${reasonOf(why)}`));
    });
    const reconciler = this.#reconciler(options);
    this.#control = new Control(stream, {
      receive: (message) => (message.type === 'lacking' ? reconciler.lacking(message.streams) : receive(message)),
      refused,
      fault,
      fail: (error) => this.destroy(error),
    });
    const round = this.#guarded(() => reconciler.round());
    const timer = setInterval(round, reconcileEvery);
    timer.unref();
    session.once('close', () => clearInterval(timer));
  }

  #reconciler({ peer, orphaned = () => {} }: LinkClientOptions): DiallingReconciler<DuplexStream> {
    return new DiallingReconciler({
      streams: () => this.#streams,
      send: (message) => this.#control.send(message),
      end(stream) {
        orphaned();
        stream.destroy(new SessionLost(`${peer} has lost the tunnel`));
      },
    });
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** @param line a control message from `encodeControl` */
  sendLine(line: string): void {
    this.#control.sendLine(line);
  }

  /**
   * Tells an agent what the callers of its tenant may dial: all rules, at the start of the link and whenever they change. Dials can
   * overtake it, so a hub that sends rules at the start announces them: see `HubHello.policy`.
   */
  sendPolicy({ deny, allow }: PolicyRules): void {
    this.#control.send({ type: 'policy', ...(deny && { deny }), ...(allow && { allow }) });
  }

  /** Tells an agent that its session now stands on the credential that it sent last. */
  sendRenewed(): void {
    this.#control.send({ type: 'renewed' });
  }

  /** Whether it takes new dials. */
  get usable(): boolean {
    return this.#ending.reason === undefined;
  }

  /** Tells the other side that this side is about to close, so that it opens another link first. Still takes dials. */
  leave(): void {
    this.#control.send({ type: 'drain' });
  }

  /** Takes no new dials, lets running tunnels finish, then closes. The caller bounds this with `destroy`. */
  close(): void {
    this.#ending.refuseDials(new Error(`link to ${this.#peer} is closing`));
    this.#session.close();
    this.#ending.endIfIdle();
  }

  /** Ends the link and every tunnel on it. Data of tunnels that ended before can still be read. */
  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }

  /** Ends the link and every tunnel on it, and tells the other side why. */
  expel(reason: Error): void {
    this.#session.destroy(reason, true);
  }

  #dial(request: DialRequest): Promise<Established> {
    if (request.signal.aborted) throw abandoned();
    const stream = this.#request(request);
    const { acknowledged = () => {} } = request;
    const guarded = this.#guarded;
    const closed = guarded(() => pending.fail(this.#lost(stream)));
    const answered = (head: Head) => this.#answer(pending, stream, head);
    const pending = pendingDial(request, {
      guarded,
      cancel: () => stream.close(),
      settled: () => stream.off('close', closed).off('headers', acknowledged).off('response', answered),
    });
    stream.on('close', closed).on('headers', acknowledged).on('response', answered);
    return pending.answer;
  }

  #answer(pending: PendingDial, stream: DuplexStream, head: Head): void {
    try {
      pending.succeed({ ...readAnswer(head), end: endOfStream(stream, this.#peer) });
    } catch (error) {
      pending.fail(asDialError(error));
      // A refusal has no tunnel behind it. An unreadable answer has one.
      if (Number(head[':status']) === 200) stream.close();
      else stream.resume().end();
    }
  }

  #request(request: DialRequest): DuplexStream {
    this.#ending.check();
    let stream: DuplexStream;
    try {
      stream = this.#session.request(requestHead(request));
    } catch (error) {
      if (error instanceof TypeError) throw new DialError('http_request_error', error.message, { cause: error });
      throw this.#ending.unreachable(error as Error);
    }
    this.#streams.add(stream);
    // The splice has its own listener. This one is for before and after it.
    stream.on('error', () => {});
    const closed = () => {
      this.#streams.delete(stream);
      this.#ending.endIfIdle();
    };
    stream.on('close', this.#guarded(closed));
    return stream;
  }

  /** The stream ended without an answer, so the caller has got nothing of the destination. */
  #lost(stream: DuplexStream): DialError {
    const refused = stream.rstCode === ErrorCode.REFUSED_STREAM && new Error('dial refused');
    const lost = () => this.#ending.reason ?? new Error('session lost before the answer');
    return this.#ending.unreachable(refused || lost());
  }
}
