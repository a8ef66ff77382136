import { printable } from '@isthmus/runtime';
import {
  type AgentTunnels,
  type Ask,
  type Attach,
  type Attached,
  AttachRefused,
  asDialError,
  type DialAbort,
  DialError,
  type DialRequest,
  type Established,
  type GatewayLoss,
  HungUp,
  LinkReset,
  type Question,
  type ResumeTicket,
  SessionLost,
  type Tunnel,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { DuplexStream, ErrorCode, encodeHead, type Head, type Http2Stream, type OutgoingHead } from '@isthmus/wire';
import { TRANSPORT } from '../defaults.ts';
import { type ServeDialOptions, type ServedDial, serve, type Waiter } from '../dials.ts';
import { percentDecoded, percentEncoded } from '../http1.ts';
import { ASK_PATH, Asks, MEMBER_FIELD } from './ask.ts';
import { type Control, type ControlMessage, GATEWAY_FIELD } from './control.ts';
import {
  ATTACH_PATH,
  answerHead,
  attachedHead,
  HUB_FIELD,
  isHexId,
  readAttach,
  readRequest,
  refusalHead,
  type ServedAttach,
  underWayHead,
} from './dial-heads.ts';
import { Link, type LinkLimits, type LinkOptions } from './link.ts';
import { StreamEnd } from './tunnel-end.ts';

/** 102 (RFC 2518 section 10.1): the dial is under way, and its answer will take a while. */
const UNDER_WAY = encodeHead({ ':status': 102 });

/** An agent does not name itself in its answer, because its hub knows the names. */
const NO_NAMES = { agentId: '', sessionId: '', hubId: '' };

const GONE = 'the dialling side went away';

/** No dials come any more, because one side has said so. */
const CLOSED = new Error('link closed');

/** Answers with a head alone. A caller's request is over then: it might never end it (RFC 9113 section 8.1). */
function answerFinally(stream: Http2Stream, head: OutgoingHead, { enter }: Pick<LinkServerOptions, 'enter'>): void {
  stream.answer(encodeHead(head), true);
  if (enter) stream.reset(ErrorCode.NO_ERROR);
}

type Progress = Pick<DialRequest, 'acknowledged' | 'underWay'>;

/** Tells the dialling side that the dial is on its way. */
function progressOn(stream: Http2Stream): Progress {
  return {
    acknowledged() {
      if (!stream.answered) stream.headers(UNDER_WAY);
    },
    underWay(roundTripMs) {
      if (roundTripMs >= TRANSPORT.longRoundTripMs && !stream.answered)
        stream.headers(encodeHead(underWayHead(roundTripMs)));
    },
  };
}

export interface LinkServerOptions extends LinkOptions, ServeDialOptions {
  /** The tunnels that end here and can be resumed, at an agent or beside an API server. Unset: all are passed on. */
  readonly tunnels?: Pick<AgentTunnels, 'instance' | 'begin' | 'attach' | 'linked' | 'unlinked' | 'hungUp'>;
  /** Called with each tunnel that a dial has begun. */
  readonly begun?: (tunnel: Tunnel) => void;
  /** Passes attaches on, at a hub. Unset: all tunnels end here. */
  readonly attach?: Attach | undefined;
  /** The only tenant whose dials are served. Unset: every tenant's. */
  readonly tenant?: string;
  /** What becomes of a caller's request where it enters the plane. Unset: the other side is of the plane. */
  readonly enter?: <Request extends ServedDial | ServedAttach>(request: Request) => Request;
  /** Told to the dialling side. Unset at agents. */
  readonly hubId?: string;
  /** Called when the dialling side closes the link, or is about to. It sends no new dials, and closes when its tunnels have ended. */
  readonly goaway?: () => void;
  /** The other side is a gateway whose certificate is for some tenants alone. */
  readonly restricted?: boolean;
  /** Answers the other side's questions. Unset: it may ask none. */
  readonly answer?: Ask | undefined;
  /** Of what the dialling side may do. Unset: it is trusted. */
  readonly limits?: LinkLimits;
}

/**
 * The serving side of a link: a hub towards gateways, an agent towards its hub, a gateway towards `isthmus hold`, and who has API servers. It is the
 * HTTP/2 server, whichever side made the connection. It reads each dial and attach, and answers it with a tunnel or a refusal.
 */
export class LinkServer extends Link {
  readonly #options: LinkServerOptions;
  /** The last message of each type, until the other side has opened its control stream. */
  readonly #unsent = new Map<string, ControlMessage>();
  #control: Control | undefined;
  #asks: Asks | undefined;
  #memberId = '';
  /** The instance of the gateway at the other side; undefined if it does not say. Its own methods alone change it. */
  gatewayInstance: string | undefined;
  #draining = false;

  constructor(options: LinkServerOptions) {
    super(options, { role: 'server', where: `${options.role} link`, limits: options.limits });
    this.#options = options;
    this.http2.once('goaway', () => {
      this.ending.refuseDials(CLOSED);
      options.goaway?.();
    });
    options.tunnels?.linked(this);
    this.http2.once('close', (reason) => options.tunnels?.unlinked(this, this.lossFor(reason)));
    this.http2.on('begun', this.#accept);
  }

  /** The id of the gateway at the other side in the plane; empty before it says so, and if it takes no questions. */
  get memberId(): string {
    return this.#asks ? this.#memberId : '';
  }

  /** Asks the gateway at the other side. */
  ask(question: Question, signal: AbortSignal): AsyncIterable<unknown> {
    if (!this.#asks) throw new Error(`${this.#options.peer} takes no questions`);
    return this.#asks.ask(question, signal);
  }

  /** Returns how the gateway at the other side was lost; undefined if it said goodbye. @param reason why the link has ended */
  lossFor(reason: Error): GatewayLoss | undefined {
    const gateway = this.gatewayInstance;
    const reset = reason instanceof LinkReset;
    const saidGoodbye = this.ending.reason === CLOSED;
    return gateway !== undefined && !saidGoodbye && (reset || reason instanceof HungUp)
      ? { gateway, reset }
      : undefined;
  }

  /** Asks the other side to send dials elsewhere while it can. Still takes them. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.send({ type: 'drain' });
  }

  /** Sends a message, once the other side has opened its control stream. */
  send(message: ControlMessage): void {
    if (this.#control) this.#control.send(message);
    else this.#unsent.set(message.type, message);
  }

  /** Takes no new dials, lets running tunnels finish, then closes. */
  close(): void {
    this.ending.refuseDials(CLOSED);
    this.http2.close();
    this.ending.endIfIdle();
  }

  readonly #accept = (stream: Http2Stream, head: Head): void => {
    const { ':method': method, ':path': path } = head;
    try {
      if (method === 'CONNECT') this.#dial(stream, head);
      else if (method === 'POST' && path === ATTACH_PATH) this.#attach(stream, head);
      else this.#acceptOther(stream, head);
    } catch (error) {
      this.fault(error as Error);
    }
  };

  /** Serves a dial. */
  #dial(stream: Http2Stream, head: Head): void {
    const read = this.#read(stream, head, readRequest, Error);
    if (!read) return;
    const { request, end, gone } = read;
    const { tunnels, attach } = this.#options;
    const { halfAtPeer = false } = request.resumeOffer ?? {};
    // What is passed on does not come from the tunnel's own end.
    if (request.resumeOffer && (attach || !tunnels))
      request.resumeOffer = { ...request.resumeOffer, halfAtPeer: false };
    const waiter: Waiter = {
      accept: (established) => (stream.closed ? gone() : this.#accepted(stream, end, established, request, halfAtPeer)),
      refuse: (error) => this.#refuse(stream, error),
      ...(this.#options.begun && { begun: this.#options.begun }),
      fault: this.fault,
    };
    void serve(request, this.#options.dial, waiter, this.#options);
  }

  /** Answers a dial that succeeded. */
  #accepted(
    stream: Http2Stream,
    end: StreamEnd,
    established: Established,
    request: DialRequest,
    halfAtPeer: boolean,
  ): TunnelEnd {
    const { resumeOffer } = request;
    const { tunnels } = this.#options;
    const answer = (ticket: ResumeTicket | undefined) => {
      stream.answer(encodeHead(answerHead(established, ticket)));
      if (ticket) end.halfAtPeer = halfAtPeer;
    };
    // One that is passed on has its half elsewhere.
    if (!resumeOffer || !tunnels || established.resumption) {
      answer(established.resumption?.ticket);
      return end;
    }
    if (halfAtPeer) this.gatewayInstance = resumeOffer.gatewayInstance;
    return tunnels.begin(request, (ticket) => {
      answer(ticket);
      return end;
    });
  }

  /** Serves an attach. A tunnel that ends here goes on; to one that ends elsewhere the attach is passed on. */
  #attach(stream: Http2Stream, head: Head): void {
    // The tunnel must not end with it.
    const read = this.#read(stream, head, readAttach, SessionLost);
    if (!read) return;
    const { request, end, gone } = read;
    end.halfAtPeer = request.halfAtPeer;
    const { attach, tunnels } = this.#options;
    const endsHere = tunnels && (!request.process || request.process.instance === tunnels.instance);
    if (attach && !endsHere) this.#passOn(stream, end, gone, request, attach);
    else this.#goOn(stream, end, request);
  }

  #passOn(stream: Http2Stream, end: StreamEnd, gone: () => undefined, request: ServedAttach, attach: Attach): void {
    const waiter: Waiter<Attached> = {
      outlived: true,
      accept: (attached) => {
        if (stream.closed) return gone();
        stream.answer(encodeHead(attachedHead(attached)));
        return end;
      },
      begun: (tunnel) => this.#options.begun?.(tunnel),
      refuse: (error) => this.#refuse(stream, error),
      fault: this.fault,
    };
    // What is passed on does not come from the tunnel's own end.
    request.halfAtPeer = false;
    void serve(request, attach, waiter, this.#options);
  }

  /** Goes on with a tunnel that ends here. */
  #goOn(stream: Http2Stream, end: StreamEnd, request: ServedAttach): void {
    const { tunnels, events, peer } = this.#options;
    try {
      if (!tunnels) throw new AttachRefused('this agent resumes no tunnels', { final: true });
      tunnels.attach(request, (answer) => {
        stream.answer(encodeHead(attachedHead({ ...NO_NAMES, answer })));
        return end;
      });
    } catch (error) {
      if (!(error instanceof AttachRefused)) throw error;
      const { message, final, ordinary } = error;
      if (!ordinary) events.emit('refused', 'attach', peer, error);
      this.#refuse(stream, new DialError('connection_terminated', message, { retryable: !final, cause: error }));
    }
  }

  /**
   * Reads the request, or refuses it.
   * @param Gone the reason why nobody waits for the answer any more, once the stream has closed
   */
  #read<Request extends ServedDial | ServedAttach>(
    stream: Http2Stream,
    head: Head,
    read: (head: Head, progress: Progress) => Request,
    Gone: typeof Error | typeof SessionLost,
  ): { readonly request: Request; readonly end: StreamEnd; readonly gone: () => undefined } | undefined {
    const { role, events, peer, enter, tenant } = this.#options;
    let signal: DialAbort | undefined;
    // A stream that was reset closes at once, and where many are, says so a little later. Who answers it then calls this first.
    const gone = () => void signal?.abort(new Gone(GONE));
    const end = new StreamEnd(stream, this.carriers, { closed: gone });
    try {
      const said = read(head, progressOn(stream));
      if (said.caller && role !== 'api-server') Object.assign(said, { caller: undefined });
      const request = enter ? enter(said) : said;
      signal = request.signal;
      if (tenant !== undefined && request.tenant !== tenant) {
        const text = `${peer} dials for tenant ${printable(request.tenant)}, and this link is of tenant ${tenant}`;
        throw new DialError('http_request_denied', text);
      }
      this.streams.add(stream);
      return { request, end, gone };
    } catch (error) {
      events.emit('refused', this.where, peer, error as Error);
      this.#refuse(stream, asDialError(error));
      return undefined;
    }
  }

  #refuse(stream: Http2Stream, error: DialError): void {
    answerFinally(stream, refusalHead(error), this.#options);
  }

  #acceptOther(stream: Http2Stream, head: Head): void {
    const { ':method': method, ':path': path } = head;
    if (method === 'POST' && path === '/control' && !this.#control) this.#openControl(new DuplexStream(stream), head);
    else if (method === 'POST' && path === ASK_PATH && this.#options.answer && this.#mayAsk)
      this.#openAsks(new DuplexStream(stream), head, this.#options.answer);
    else answerFinally(stream, { ':status': method === 'POST' ? 404 : 405 }, this.#options);
  }

  /** A hub may open another stream at its agent before the last one has closed. */
  get #mayAsk(): boolean {
    return this.#options.role === 'agent' || !this.#asks;
  }

  #openAsks(stream: DuplexStream, head: Head, answer: Ask): void {
    stream.respond({ ':status': 200 });
    const { peer, role, restricted = false, allowance } = this.#options;
    // A gateway of some tenants alone answers for no member.
    if (!restricted) this.#memberId = percentDecoded(head[MEMBER_FIELD] ?? '') ?? '';
    const asks = new Asks(stream, {
      peer,
      answer,
      lineBytes: restricted ? TRANSPORT.agentAnswerBytes : TRANSPORT.memberAnswerBytes,
      sendBytes: role === 'agent' ? TRANSPORT.agentAnswerBytes : TRANSPORT.memberAnswerBytes,
      ...(restricted && { allowance }),
    });
    this.#asks = asks;
    stream.once('close', () => {
      if (this.#asks === asks) this.#asks = undefined;
    });
  }

  #openControl(stream: DuplexStream, head: Head): void {
    const gateway = head[GATEWAY_FIELD];
    if (gateway !== undefined && isHexId(gateway)) this.gatewayInstance = gateway;
    const { hubId } = this.#options;
    stream.respond({ ':status': 200, ...(hubId !== undefined && { [HUB_FIELD]: percentEncoded(hubId) }) });
    const { hubLineBytes, controlLineBytes } = TRANSPORT;
    const lineBytes = this.#options.role === 'agent' ? hubLineBytes : controlLineBytes;
    this.#control = this.control(stream, lineBytes, (message) => this.#receive(message));
    for (const message of this.#unsent.values()) this.#control.send(message);
    this.#unsent.clear();
  }

  #receive(message: ControlMessage): void {
    if (message.type === 'drain') this.#options.goaway?.();
    else if (message.type === 'hung-up') this.#options.tunnels?.hungUp(message, this);
    else this.#options.receive?.(message);
  }
}
