import { type ConnectLimits, unlessGivenUp } from '@isthmus/runtime';
import {
  type Ask,
  type Attach,
  type AttachRequest,
  asDialError,
  DIRECT,
  type Dial,
  DialError,
  type DialRequest,
  type Established,
  type Question,
} from '@isthmus/tunnel';
import { Allowance, ErrorCode, type Head, type HeadKind, type Http2Stream, type OutgoingHead } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { abandoned, type NextHopConnection, PendingDial } from '../dials.ts';
import { percentDecoded, percentEncoded, reasonOf } from '../http1.ts';
import { WHY_FIELD } from '../tls/admit.ts';
import { ASK_PATH, Asks, MEMBER_FIELD, nothing } from './ask.ts';
import {
  type Control,
  type ControlMessage,
  type CutMessage,
  controlCost,
  encodeControl,
  GATEWAY_FIELD,
} from './control.ts';
import {
  attachHead,
  HUB_FIELD,
  readAnswer,
  readAttachedAnswer,
  readUnderWay,
  requestHead,
  type SessionNames,
} from './dial-heads.ts';
import { Link, type LinkOptions } from './link.ts';
import { StreamEnd, WAY_LOST } from './tunnel-end.ts';

/** Of a stream beside the dials. */
const LINK_HEAD = { ':method': 'POST', ':scheme': 'http', ':authority': 'link' };

const CONTROL_HEAD = { ...LINK_HEAD, ':path': '/control' };

export interface LinkClientOptions extends LinkOptions {
  /** Names the agent's session at the other side. What an answer says of itself is then left out. */
  readonly session?: SessionNames;
  /**
   * What the other side is: an agent, where the tunnels end; a process beside API servers, or a hub on the way to one; or a gateway, which passes them
   * on. Default: a hub, as a gateway.
   */
  readonly to?: 'agent' | 'gateway' | 'api-server';
  /** Names this process, if it is a gateway. */
  readonly gatewayInstance?: string;
  /** Set for a gateway towards a hub: its id in the plane, and its answers to the hub's questions. */
  readonly member?: { readonly id: string; readonly answer: Ask } | undefined;
  readonly suspected?: (is: boolean) => void;
}

/** What a link's events say it leads to. */
const PLACES = { agent: 'agents', hub: 'peers', gateway: 'gateways', 'api-server': 'api-server link' } as const;

/** What has cut the tunnels if its process closes the connection. */
const HANGS_UP = { agent: 'agent', hub: undefined, gateway: 'gateway', 'api-server': 'path' } as const;

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
export class LinkClient extends Link implements NextHopConnection {
  readonly #answered = Promise.withResolvers<string | undefined>();
  readonly #session: SessionNames | undefined;
  /** Whether the tunnels end at the other side. Unset: each answer says it. */
  readonly #halfAtPeer: boolean | undefined;
  readonly #control: Control;
  readonly #member: LinkClientOptions['member'];
  readonly #allowance: Allowance | undefined;
  #asks: Asks | undefined;
  #askAgain: NodeJS.Timeout | undefined;
  #cuts: Allowance | undefined;
  /** How many bytes had come when the last dial began. */
  #readBefore = -1;
  /** Whether the other side has asked to send new dials elsewhere. It still takes them. */
  leaves = false;

  constructor(options: LinkClientOptions) {
    const { to = 'hub', receive = () => {} } = options;
    super(options, { role: 'client', where: PLACES[to], hangsUp: HANGS_UP[to], suspected: options.suspected });
    const { http2 } = this;
    this.#session = options.session;
    this.#halfAtPeer = to === 'api-server' ? undefined : to === 'agent';
    http2.once('goaway', () => this.ending.refuseDials(new Error('it is closing the link')));
    http2.once('close', () => clearTimeout(this.#askAgain));
    const stream = http2.request({
      ...CONTROL_HEAD,
      ...(options.gatewayInstance !== undefined && { [GATEWAY_FIELD]: options.gatewayInstance }),
    });
    stream.once('response', (head: Head) => {
      const why = head[WHY_FIELD];
      if (why === undefined) this.#answered.resolve(percentDecoded(head[HUB_FIELD] ?? ''));
      else this.destroy(new Error(`it refuses this link: ${reasonOf(why)}`));
    });
    this.#control = this.control(stream, TRANSPORT.controlLineBytes, (message) => {
      this.leaves ||= message.type === 'drain';
      receive(message);
    });
    this.#member = options.member;
    this.#allowance = options.allowance;
    // The hub may ask from now on.
    if (options.member) this.#questions();
  }

  /** Resolves when the other side has accepted the link, with the name that a hub says. Otherwise rejects, and the link has ended. */
  async accepted({ timeout, signal }: ConnectLimits): Promise<string | undefined> {
    const late = `it has not accepted the link within ${timeout} ms`;
    const answered = () => Promise.race([this.#answered.promise, this.closed]);
    const answer = await unlessGivenUp(this, answered, { timeout, late, signal });
    if (answer instanceof Error) throw answer;
    return answer;
  }

  /** A dial that was given up, because another session was faster, has found out nothing yet. */
  protected override get carries(): boolean {
    return super.carries || this.http2.bytesRead === this.#readBefore;
  }

  /** The round-trip time, in milliseconds, a recent minimum; undefined before the first PING is answered. */
  get rtt(): number | undefined {
    return this.http2.rtt || undefined;
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
    const stream = this.http2.request({ ...LINK_HEAD, ':path': ASK_PATH, ...named });
    const asks = new Asks(stream, {
      peer: this.carriers.peer,
      answer: member?.answer ?? nothing,
      lineBytes: member ? TRANSPORT.memberAnswerBytes : TRANSPORT.agentAnswerBytes,
      sendBytes: member ? TRANSPORT.memberAnswerBytes : TRANSPORT.agentAnswerBytes,
      ...(!member && { allowance: this.#allowance, idle: () => over().close(ErrorCode.NO_ERROR) }),
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
    if (!this.http2.closed) this.#askAgain = setTimeout(again, TRANSPORT.asksAgainMs).unref();
  }

  /** Resolves when all control messages are on their way, or never will be. */
  flushed(): Promise<void> {
    return this.#control.flushed();
  }

  /** Whether the link accepts new dials. */
  get usable(): boolean {
    return this.ending.reason === undefined;
  }

  /** Tells the other side that this side is about to close, so that it opens another link first. Still accepts dials. */
  leave(): void {
    this.send({ type: 'drain' });
  }

  /** Accepts no new dials, lets running tunnels finish, then closes. The caller bounds this with `destroy`. */
  close(): void {
    this.ending.refuseDials(new Error('the link is closing'));
    this.http2.close();
    this.ending.endIfIdle();
  }

  readonly dial: Dial = (request) =>
    this.#ask(request, requestHead(request), {
      read: (head, end) => {
        const { agentId, sessionId, hubId, agentPrincipal, timing, ticket } = readAnswer(head, this.#session);
        // A session that was asked for has its name from the registry: an answer may name any.
        const established: Established = { end, agentId, sessionId: request.session ?? sessionId, hubId, timing };
        if (agentPrincipal !== undefined) established.agentPrincipal = agentPrincipal;
        if (ticket) {
          end.halfAtPeer = this.#halfAtPeer ?? endsThere(agentId);
          established.resumption = { ticket, carrier: end };
        }
        return established;
      },
      acknowledged: request.acknowledged,
      cancelled: ErrorCode.CANCEL,
    });

  readonly attach: Attach = (request) =>
    this.#ask(request, attachHead(request), {
      read: (head, end) => {
        const answer = readAttachedAnswer(head);
        end.halfAtPeer = this.#halfAtPeer ?? endsThere(answer.agentId);
        return { ...answer, end, carrier: end };
      },
      acknowledged: undefined,
      // If nobody waits for it any more, its tunnel must not end with it.
      cancelled: WAY_LOST,
    });

  #ask<Answer>(
    request: DialRequest | AttachRequest,
    head: OutgoingHead,
    { read, acknowledged, cancelled }: Asking<Answer>,
  ): Promise<Answer> {
    if (request.signal.aborted) return Promise.reject(abandoned());
    const { guarded, http2, ending } = this;
    if (ending.reason) return Promise.reject(ending.errorOf(ending.reason));
    let stream: Http2Stream;
    try {
      stream = http2.begin(head);
    } catch (thrown) {
      const error = thrown as Error;
      const isOurs = error instanceof TypeError;
      return Promise.reject(
        isOurs ? new DialError('http_request_error', error.message, { cause: error }) : ending.errorOf(error),
      );
    }
    this.streams.add(stream);
    this.#readBefore = http2.bytesRead;
    // Why a link ends is known only after all its streams have ended.
    const closed = (code: number | undefined) => queueMicrotask(guarded(() => pending.fail(this.#lost(code))));
    const headed = (head: Head, kind: HeadKind) => {
      if (kind !== 'response') {
        const roundTripMs = readUnderWay(head);
        if (roundTripMs === undefined) acknowledged?.();
        else request.underWay?.(roundTripMs);
        return;
      }
      try {
        pending.succeed(read(head, end));
      } catch (error) {
        pending.fail(asDialError(error));
        // Both sides end the stream of a refusal. One that has not ended then would stay for good; after an unreadable answer it is a tunnel.
        if (Number(head[':status']) !== 200) stream.end();
        queueMicrotask(guarded(() => stream.reset(cancelled)));
      }
    };
    const end = new StreamEnd(stream, this.carriers, { headed, closed });
    const pending = new PendingDial<Answer>(request, {
      guarded,
      cancel: () => stream.reset(cancelled),
    });
    request.underWay?.(http2.rtt || TRANSPORT.unknownRoundTripMs);
    return pending.answer;
  }

  /** Returns the error of a dial whose stream ended without an answer. The caller has received nothing from the destination. */
  #lost(code: number | undefined): DialError {
    const { reason } = this.ending;
    if (reason) return this.ending.errorOf(reason);
    // The link goes on: another session may serve the dial, but none is about to take this one's place.
    const why = code === ErrorCode.REFUSED_STREAM ? 'dial refused' : 'the stream ended without an answer';
    return new DialError('proxy_internal_error', `${this.carriers.peer}: ${why}`, { retryable: true });
  }
}

/** Whether a tunnel to an API server ends at the other side. A hub names the gateway where it does instead. */
function endsThere(agentId: string): boolean {
  return agentId === DIRECT || agentId === '';
}
