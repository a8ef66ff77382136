import type { Socket } from 'node:net';
import { type Guarded, guarding, RandomSet } from '@isthmus/runtime';
import {
  type Ask,
  type Attach,
  type Attached,
  type AttachRequest,
  asDialError,
  DIRECT,
  type Dial,
  DialError,
  type DialRequest,
  type Established,
  type PlaneEvents,
  planeEnded,
  type Question,
} from '@isthmus/tunnel';
import {
  Allowance,
  ErrorCode,
  type Head,
  type HeadKind,
  type Http2Link,
  type Http2Stream,
  type OutgoingHead,
  type PingInterval,
  watchLiveness,
} from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { abandoned, Drain, type NextHopConnection, PendingDial } from '../dialling-side.ts';
import { percentDecoded, percentEncoded, reasonOf } from '../http1.ts';
import { WHY_FIELD } from '../tls/admit.ts';
import { ASK_PATH, Asks, MEMBER_FIELD, nothing } from './ask.ts';
import { Control, type ControlMessage, type CutMessage, controlCost, encodeControl, GATEWAY_FIELD } from './control.ts';
import {
  type Answer,
  attachHead,
  HUB_FIELD,
  readAnswer,
  readAttachedAnswer,
  readUnderWay,
  requestHead,
  type SessionNames,
} from './dial-heads.ts';
import { type CarrierLink, cutStreams, http2Link, StreamEnd, WAY_LOST } from './tunnel-end.ts';

/** Of a stream beside the dials. */
const LINK_HEAD = { ':method': 'POST', ':scheme': 'http', ':authority': 'link' };

const CONTROL_HEAD = { ...LINK_HEAD, ':path': '/control' };

export interface LinkClientOptions {
  readonly socket: Socket;
  /** What is at the other side, for error texts: `agent a1`, `hub h1`. */
  readonly peer: string;
  /** Names the agent's session at the other side. What an answer says of itself is then left out. */
  readonly session?: SessionNames;
  /**
   * What the other side is: an agent, where the tunnels end; a process beside API servers, or a hub on the way to one; or a gateway, which passes them
   * on. Default: a hub, as a gateway.
   */
  readonly to?: 'agent' | 'gateway' | 'api-server';
  /** Names this process, if it is a gateway. */
  readonly gatewayInstance?: string;
  readonly receive?: (message: ControlMessage) => void;
  /** Of control messages of the other side's tenant. Unset: it is trusted. */
  readonly allowance?: Allowance;
  /** Set for a gateway towards a hub: its id in the plane, and its answers to the hub's questions. */
  readonly member?: { readonly id: string; readonly answer: Ask } | undefined;
  readonly events: PlaneEvents;
  /** See `watchLiveness`. */
  readonly ping?: PingInterval | undefined;
  readonly suspected?: (is: boolean) => void;
}

/** What a link's events say it leads to. */
const PLACES = { agent: 'agents', hub: 'peers', gateway: 'gateways', 'api-server': 'api-server link' } as const;

/** A request that opens a stream. */
interface Asking<Answer> {
  /** Reads the answer. Throws the refusal, or what is wrong with the answer. */
  readonly read: (head: Head, end: StreamEnd) => Answer;
  readonly acknowledged: (() => void) | undefined;
  /** Code of the reset if nobody waits for the answer any more. */
  readonly cancelled: number;
}

/**
 * The dialling side of a link: a gateway towards a hub, a hub towards an agent, `isthmus hold` towards a gateway, and an agent, or its hub, on the
 * way to an API server. It is the HTTP/2 client, whichever side made the connection.
 */
export class LinkClient implements NextHopConnection {
  readonly dial: Dial;
  readonly attach: Attach;
  readonly closed: Promise<Error>;
  readonly #answered = Promise.withResolvers<string | undefined>();
  /** Resolves when the other side has accepted the link, with the name that a hub says. */
  readonly answered = this.#answered.promise;
  readonly #http2: Http2Link;
  readonly #guarded: Guarded;
  readonly #peer: string;
  readonly #session: SessionNames | undefined;
  /** Whether the tunnels end at the other side. Unset: each answer says it. */
  readonly #halfAtPeer: boolean | undefined;
  readonly #control: Control;
  readonly #member: LinkClientOptions['member'];
  readonly #allowance: Allowance | undefined;
  #asks: Asks | undefined;
  #askAgain: NodeJS.Timeout | undefined;
  #cuts: Allowance | undefined;
  readonly #streams = new RandomSet<Http2Stream>();
  /** How many bytes had come when the last dial began. */
  #readBefore = -1;
  readonly #closed: (stream: Http2Stream) => void;
  readonly #carriers: CarrierLink;
  readonly #drain: Drain;
  #leaves = false;

  constructor(options: LinkClientOptions) {
    const { socket, peer, receive = () => {}, events } = options;
    const where = PLACES[options.to ?? 'hub'];
    const hangsUp = options.to === 'api-server' ? 'path' : options.to;
    const http2 = http2Link('client', socket, peer, () => mayHaveDied(), hangsUp);
    this.#http2 = http2;
    this.#peer = peer;
    this.#session = options.session;
    this.#halfAtPeer = options.to === 'api-server' ? undefined : options.to === 'agent';
    // The control stream alone does not keep a link open.
    const drain = new Drain({ peer, open: () => this.open, end: (reason) => this.destroy(reason) });
    this.#drain = drain;
    this.closed = drain.closed;
    this.dial = (request) => this.#dial(request);
    this.attach = (request) => this.#attach(request);
    const fault = (error: Error) => {
      this.destroy(error);
      events.emit('fault', where, peer, error);
    };
    this.#guarded = guarding(fault);
    this.#closed = this.#guarded((stream: Http2Stream) => {
      this.#streams.delete(stream);
      drain.endIfIdle();
    });
    this.#carriers = { peer, far: 'destination', closed: this.#closed };
    http2.on('fault', fault);
    http2.once('goaway', () => drain.refuseDials(new Error('it is closing the link')));
    http2.once('close', (reason) => {
      clearTimeout(this.#askAgain);
      drain.over(reason);
    });
    // It tells the other side the reason. If that arrives, the other side does not think that this process is dead.
    const mayHaveDied = watchLiveness(http2, (error) => http2.destroy(error, true), {
      ping: options.ping,
      suspected: options.suspected,
      // A dial that was given up, because another session was faster, has found out nothing yet.
      carries: () => this.open > 0 || http2.bytesRead === this.#readBefore,
    });
    const stream = http2.request({
      ...CONTROL_HEAD,
      ...(options.gatewayInstance !== undefined && { [GATEWAY_FIELD]: options.gatewayInstance }),
    });
    stream.once('close', () => this.destroy(new Error('control stream ended')));
    stream.once('response', (head: Head) => {
      const why = head[WHY_FIELD];
      if (why === undefined) this.#answered.resolve(percentDecoded(head[HUB_FIELD] ?? ''));
      else this.destroy(new Error(`it refuses this link: ${reasonOf(why)}`));
    });
    this.#control = new Control(stream, {
      lineBytes: TRANSPORT.controlLineBytes,
      allowance: options.allowance,
      receive: (message) => {
        this.#leaves ||= message.type === 'drain';
        receive(message);
      },
      refused: (error) => events.emit('refused', where, peer, error),
      fault,
      fail: (error) => this.destroy(error),
    });
    this.#member = options.member;
    this.#allowance = options.allowance;
    // The hub may ask from now on.
    if (options.member) this.#questions();
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** The round-trip time, in milliseconds, a recent minimum; undefined before the first PING is answered. */
  get rtt(): number | undefined {
    return this.#http2.rtt || undefined;
  }

  send(message: ControlMessage): void {
    this.#control.send(message);
  }

  /** @param line a control message from `encodeControl` */
  sendLine(line: string): void {
    this.#control.sendLine(line);
  }

  /**
   * Tells a gateway that a tunnel of this process was cut. Cuts take half of what a link takes, so that they never end it.
   * @returns whether the link takes it now
   */
  sendCut(cut: CutMessage): boolean {
    const line = encodeControl(cut);
    this.#cuts ??= new Allowance({
      atOnce: TRANSPORT.controlMessagesAtOnce / 2,
      perSecond: TRANSPORT.controlMessagesPerSecond / 2,
    });
    if (!this.#cuts.spend(controlCost(Buffer.byteLength(line)))) return false;
    this.#control.sendLine(line);
    return true;
  }

  /** Asks the process at the other side. */
  ask(question: Question, signal: AbortSignal): AsyncIterable<unknown> {
    return this.#questions().ask(question, signal);
  }

  #questions(): Asks {
    this.#asks ??= this.#openAsks();
    return this.#asks;
  }

  /** A gateway's stream stays open, also while the hub drains. An agent's ends with its last answer. */
  #openAsks(): Asks {
    const member = this.#member;
    const named = member && { [MEMBER_FIELD]: percentEncoded(member.id) };
    const stream = this.#http2.request({ ...LINK_HEAD, ':path': ASK_PATH, ...named });
    const asks = new Asks(stream, {
      peer: this.#peer,
      answer: member?.answer ?? nothing,
      lineBytes: member ? TRANSPORT.memberAnswerBytes : TRANSPORT.agentAnswerBytes,
      sendBytes: member ? TRANSPORT.memberAnswerBytes : TRANSPORT.agentAnswerBytes,
      ...(!member && { allowance: this.#allowance, idle: () => over().end() }),
    });
    let refused = false;
    const over = () => {
      if (this.#asks === asks) this.#asks = undefined;
      return stream;
    };
    stream.once('close', () => {
      over();
      // The hub may ask, too, and only this side opens the stream.
      if (member && !refused) this.#askLater();
    });
    stream.once('response', ({ ':status': status }: Head) => {
      refused = status !== '200';
      if (refused) stream.destroy(new Error('it runs a version that takes no questions'));
    });
    return asks;
  }

  /** A link that leaves takes no new stream, and one that is full takes none yet. */
  #askLater(): void {
    const again = () => {
      try {
        this.#questions();
      } catch {
        this.#askLater();
      }
    };
    if (!this.#http2.closed) this.#askAgain = setTimeout(again, TRANSPORT.asksAgainMs).unref();
  }

  /** Resolves when all control messages are on their way, or never will be. */
  flushed(): Promise<void> {
    return this.#control.flushed();
  }

  /** Whether the link accepts new dials. */
  get usable(): boolean {
    return this.#drain.reason === undefined;
  }

  /** Whether the other side has asked to send new dials elsewhere. It still takes them. */
  get leaves(): boolean {
    return this.#leaves;
  }

  /** Tells the other side that this side is about to close, so that it opens another link first. Still accepts dials. */
  leave(): void {
    this.send({ type: 'drain' });
  }

  /** Accepts no new dials, lets running tunnels finish, then closes. The caller bounds this with `destroy`. */
  close(): void {
    this.#drain.refuseDials(new Error('the link is closing'));
    this.#http2.close();
    this.#drain.endIfIdle();
  }

  /** Ends the link and every tunnel on it. Data of tunnels that ended before can still be read. */
  destroy(reason: Error): void {
    this.#http2.destroy(reason);
  }

  /** Ends the link and every tunnel on it, also those that could be resumed elsewhere, and tells the other side why. */
  destroyAndTell(reason: Error): void {
    cutStreams(this.#streams, planeEnded(reason, 'credential'));
    this.#http2.destroy(reason, true);
  }

  #dial(request: DialRequest): Promise<Established> {
    return this.#ask(request, requestHead(request), {
      read: (head, end) => this.#established(readAnswer(head, this.#session), request.session, end),
      acknowledged: request.acknowledged,
      cancelled: ErrorCode.CANCEL,
    });
  }

  /** @param asked the session that was asked for, which has its name from the registry: an answer may name any */
  #established(answer: Answer, asked: string | undefined, end: StreamEnd): Established {
    const { agentId, sessionId, hubId, agentPrincipal, timing, ticket } = answer;
    const established: Established = { end, agentId, sessionId: asked ?? sessionId, hubId, timing };
    if (agentPrincipal !== undefined) established.agentPrincipal = agentPrincipal;
    if (ticket) {
      end.halfAtPeer = this.#halfAtPeer ?? endsThere(agentId);
      established.resumption = { ticket, end };
    }
    return established;
  }

  #attach(request: AttachRequest): Promise<Attached> {
    return this.#ask(request, attachHead(request), {
      read: (head, end) => {
        const answer = readAttachedAnswer(head);
        end.halfAtPeer = this.#halfAtPeer ?? endsThere(answer.agentId);
        return { ...answer, end, carrier: () => end.carrier() };
      },
      acknowledged: undefined,
      // If nobody waits for it any more, its tunnel must not end with it.
      cancelled: WAY_LOST,
    });
  }

  #ask<Answer>(
    request: DialRequest | AttachRequest,
    head: OutgoingHead,
    { read, acknowledged, cancelled }: Asking<Answer>,
  ): Promise<Answer> {
    if (request.signal.aborted) return Promise.reject(abandoned());
    const stream = this.#begin(head);
    if (stream instanceof DialError) return Promise.reject(stream);
    const guarded = this.#guarded;
    // Why a link ends is known only after all its streams have ended.
    const closed = (code: number | undefined) => queueMicrotask(guarded(() => pending.fail(this.#lost(code))));
    const answered = (head: Head) => {
      try {
        pending.succeed(read(head, end));
      } catch (error) {
        pending.fail(asDialError(error));
        // After a refusal there is no tunnel to end. After an unreadable answer there is one.
        if (Number(head[':status']) === 200) stream.reset(cancelled);
        else stream.end();
      }
    };
    const headed = (head: Head, kind: HeadKind) => {
      const roundTripMs = readUnderWay(head);
      if (kind === 'response') answered(head);
      else if (roundTripMs !== undefined) request.underWay?.(roundTripMs);
      else acknowledged?.();
    };
    const end = new StreamEnd(stream, this.#carriers, { headed, closed });
    const pending = new PendingDial<Answer>(request, {
      guarded,
      cancel: () => stream.reset(cancelled),
    });
    request.underWay?.(this.rtt ?? TRANSPORT.unknownRoundTripMs);
    return pending.answer;
  }

  /** @returns why it cannot open a stream, if it cannot */
  #begin(head: OutgoingHead): Http2Stream | DialError {
    const { reason } = this.#drain;
    if (reason) return this.#drain.errorOf(reason);
    try {
      const stream = this.#http2.begin(head);
      this.#streams.add(stream);
      this.#readBefore = this.#http2.bytesRead;
      return stream;
    } catch (error) {
      if (error instanceof TypeError) return new DialError('http_request_error', error.message, { cause: error });
      return this.#drain.errorOf(error as Error);
    }
  }

  /** Returns the error of a dial whose stream ended without an answer. The caller has received nothing from the destination. */
  #lost(code: number | undefined): DialError {
    const { reason } = this.#drain;
    if (reason) return this.#drain.errorOf(reason);
    // The link goes on: another session may serve the dial, but none is about to take this one's place.
    const why = code === ErrorCode.REFUSED_STREAM ? 'dial refused' : 'the stream ended without an answer';
    return new DialError('proxy_internal_error', `${this.#peer}: ${why}`, { retryable: true });
  }
}

/** Whether a tunnel to an API server ends at the other side. A hub names the gateway where it does instead. */
function endsThere(agentId: string): boolean {
  return agentId === DIRECT || agentId === '';
}
