import type { Socket } from 'node:net';
import {
  DuplexStream,
  ErrorCode,
  encodeHead,
  type Head,
  type Http2Session,
  type Http2Stream,
  PendingStream,
} from '@isthmus/http2';
import { deferred, extended, guarding, RandomSet } from '@isthmus/runtime';
import {
  type AgentTunnels,
  type AttachClaim,
  AttachRefused,
  asDialError,
  DialError,
  type DialRequest,
  type Established,
  type GatewayLoss,
  HungUp,
  LinkReset,
  printable,
  type ResumeGrant,
  type ResumeRequest,
  SessionLost,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { type ServeDialOptions, type ServedDial, serveDial, type Waiter } from '../dial/serve-dial.ts';
import { Control, type ControlMessage } from './control.ts';
import { type Answer, answerHead, readRequest, refusalHead } from './head.ts';
import { GATEWAY_FIELD, isInstance } from './instance.ts';
import { watchLiveness } from './liveness.ts';
import type { MembershipMessage } from './membership.ts';
import type { PolicyRules } from './policy.ts';
import { ServingReconciler } from './reconcile.ts';
import { linkSession } from './settings.ts';
import { type CarrierLink, StreamCarrier } from './stream-carrier.ts';
import { asDuplex, endOfStream } from './tunnel-end.ts';

export interface LinkServerOptions extends ServeDialOptions {
  readonly socket: Socket;
  /** What is at the other side, for error texts. */
  readonly peer: string;
  /** Called when the dialling side closes the link, or is about to. It sends no new dials, and closes when its tunnels have ended. */
  readonly goaway?: () => void;
  /** Gets what the hub on the other side says about its plane's hubs. */
  readonly membership?: (message: MembershipMessage) => void;
  /** The tunnels that end here and may be resumed, at an agent. Unset at a hub, which passes on what their ends say. */
  readonly tunnels?: AgentTunnels;
  /** The only tenant whose dials are served. Unset: every tenant's. */
  readonly tenant?: string;
  /** Gets what the tenant's callers may dial. It may throw for rules that cannot be used: they are counted as refused. */
  readonly policy?: (rules: PolicyRules) => void;
  /** See `watchLiveness`. Both sides must agree on it. */
  readonly pingInterval?: number | undefined;
  /** Called when the hub has taken the credential that was sent last. */
  readonly renewed?: () => void;
}

/**
 * The serving half of a link: a hub towards gateways, an agent towards its hub. It is the HTTP/2 server, whichever side made the
 * connection.
 */
export class LinkServer {
  readonly #closed = deferred<Error>();
  /** Resolves with the reason when the link and all its tunnels have ended. */
  readonly closed = this.#closed.promise;
  readonly #session: Http2Session;
  readonly #options: LinkServerOptions;
  readonly #streams = new RandomSet<Http2Stream>();
  readonly #unsent: ControlMessage[] = [];
  readonly #reconciler = new ServingReconciler<Http2Stream>({
    streams: () => this.#streams,
    send: (message) => this.#send(message),
    end: (stream) => this.#endOrphan(stream),
  });
  readonly #guarded = guarding((error) => this.#fault(error));
  readonly #closedStream = this.#guarded((stream: Http2Stream) => {
    this.#streams.delete(stream);
    this.#endWhenIdle();
  });
  readonly #carriers: CarrierLink;
  #control: Control | undefined;
  /** The gateway at the other side, by its process. */
  #gateway: string | undefined;
  #draining = false;
  #closing = false;

  constructor(options: LinkServerOptions) {
    this.#options = options;
    const session = linkSession('server', options.socket, options.peer, () => wroteLately());
    this.#session = session;
    this.#carriers = { peer: options.peer, far: 'caller', closed: this.#closedStream };
    session.once('goaway', () => {
      this.#closing = true;
      options.goaway?.();
    });
    options.tunnels?.linked(this);
    session.once('close', (reason) => {
      options.tunnels?.unlinked(this, this.lossFor(reason));
      this.#closed.resolve(reason);
    });
    // Told, so that the other side, if it hears that, does not take this process for dead.
    const wroteLately = watchLiveness(session, (error) => session.destroy(error, true), {
      interval: options.pingInterval,
    });
    session.on('fault', (error) => this.#fault(error));
    session.on('begun', (stream, head) => this.#accept(stream, head));
  }

  /** Tunnels and pending dials. */
  get open(): number {
    return this.#streams.size;
  }

  /** The gateway at the other side, by its process; undefined if it does not say. */
  get gateway(): string | undefined {
    return this.#gateway;
  }

  /** How a gateway has left that did not say goodbye. @param reason with which the link has ended */
  lossFor(reason: Error): GatewayLoss | undefined {
    const gateway = this.#gateway;
    const reset = reason instanceof LinkReset;
    return gateway !== undefined && !this.#closing && (reset || reason instanceof HungUp)
      ? { gateway, reset }
      : undefined;
  }

  /** Asks the other side to send dials elsewhere while it can. Still takes them. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    this.#send({ type: 'drain' });
  }

  /** Sends a hub a fresh token. Call only if the hub has said that it takes one: see `HubHello.renewal`. */
  sendCredential(token: string): void {
    this.#send({ type: 'credential', token });
  }

  /** Takes no new dials, lets running tunnels finish, then closes. */
  close(): void {
    this.#closing = true;
    this.#session.close();
    this.#endWhenIdle();
  }

  /** Ends the link and every tunnel on it. Data of tunnels that ended before can still be read. */
  destroy(reason: Error): void {
    this.#session.destroy(reason);
  }

  /** An idle control stream does not keep the link. */
  #endWhenIdle(): void {
    if (this.#closing && this.#streams.size === 0) this.destroy(new Error('link closed'));
  }

  #accept(stream: Http2Stream, head: Head): void {
    if (head[':method'] === 'CONNECT') this.#serve(stream, head).catch((error) => this.#fault(error));
    else
      this.#acceptOther(
        new DuplexStream(stream).on('error', () => {}),
        head,
      );
  }

  #acceptOther(stream: DuplexStream, head: Head): void {
    const { ':method': method, ':path': path } = head;
    if (method === 'POST' && path === '/control' && !this.#control) this.#openControl(stream, head);
    else stream.resume().respond({ ':status': method === 'POST' ? 404 : 405 }, { endStream: true });
  }

  async #serve(stream: Http2Stream, head: Head): Promise<void> {
    const { role, events, peer } = this.#options;
    const closed = () => {
      this.#closedStream(stream);
      request?.signal.abort(abandonment(request));
    };
    const asked = new PendingStream(stream, { closed });
    let request: ServedDial | undefined;
    try {
      request = readRequest(head);
      this.#checkTenant(request);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
      this.#refuse(asked, asDialError(error));
      return;
    }
    this.#streams.add(stream);
    if (request.resume?.attach && role === 'agent') this.#attach(asked, request, request.resume.attach);
    else await this.#dial(asked, request);
  }

  async #dial(asked: PendingStream, request: ServedDial): Promise<void> {
    const { stream } = asked;
    // 102 (RFC 2518 section 10.1): the dial is under way, and its answer will take a while.
    const acknowledged = () => stream.answered || stream.headers(UNDER_WAY);
    const waiter: Waiter = {
      accept: (established) => (stream.closed ? undefined : this.#accepted(asked, established, request)),
      refuse: (error) => this.#refuse(asked, error),
    };
    await serveDial(extended(request, { acknowledged }), waiter, this.#options);
  }

  /** Answers a dial that succeeded. */
  #accepted(asked: PendingStream, established: Established, { tenant, resume }: DialRequest): TunnelEnd {
    const { peer, tunnels } = this.#options;
    if (!resume || !tunnels) {
      asked.stream.answer(encodeHead(answerHead(established)));
      return endOfStream(asDuplex(asked, this.#closedStream), peer, established.resume !== undefined);
    }
    const { direct, gateway } = resume;
    if (direct) this.#gateway = gateway;
    const answer = (grant: ResumeGrant) => this.#carrier(asked, extended(established, { resume: { grant } }), resume);
    return tunnels.begin({ tenant, gateway }, answer);
  }

  /** Goes on with a tunnel that ends here. */
  #attach(asked: PendingStream, { tenant, resume = {} }: DialRequest, attach: AttachClaim): void {
    const { tunnels, events, peer } = this.#options;
    try {
      if (!tunnels) throw new AttachRefused('this agent resumes no tunnels', { final: true });
      tunnels.attach({ tenant, attach }, (attached) =>
        this.#carrier(asked, { ...NO_ANSWER, resume: { attached } }, resume),
      );
    } catch (error) {
      if (!(error instanceof AttachRefused)) throw error;
      const { message, final, ordinary } = error;
      if (!ordinary) events.emit('refused', 'attach', peer, error);
      this.#refuse(asked, new DialError('connection_terminated', message, { retryable: !final, cause: error }));
    }
  }

  /** Answers, and makes the stream of the answer a carrier. */
  #carrier(asked: PendingStream, answer: Answer, { direct = false }: ResumeRequest): StreamCarrier {
    asked.stream.answer(encodeHead(answerHead(answer)));
    return new StreamCarrier(asked, this.#carriers, direct);
  }

  #refuse(asked: PendingStream, error: DialError): void {
    if (asked.stream.closed) return;
    const stream = asDuplex(asked, this.#closedStream);
    stream.respond(refusalHead(error), { endStream: true });
    stream.resume();
  }

  #checkTenant({ tenant }: ServedDial): void {
    const { tenant: own = tenant, peer } = this.#options;
    if (tenant === own) return;
    const text = `${peer} dials for tenant ${printable(tenant)}, and this link is of tenant ${own}`;
    throw new DialError('http_request_denied', text);
  }

  #openControl(stream: DuplexStream, head: Head): void {
    const gateway = head[GATEWAY_FIELD];
    if (gateway !== undefined && isInstance(gateway)) this.#gateway = gateway;
    stream.respond({ ':status': 200 });
    stream.once('close', () => this.destroy(new Error('control stream ended')));
    const { role, events, peer } = this.#options;
    this.#control = new Control(stream, {
      receive: (message) => this.#receive(message),
      refused: (error) => events.emit('refused', `${role} link`, peer, error),
      fault: (error) => this.#fault(error),
      fail: (error) => this.destroy(error),
    });
    for (const message of this.#unsent.splice(0)) this.#control.send(message);
  }

  #send(message: ControlMessage): void {
    if (this.#control) this.#control.send(message);
    else this.#unsent.push(message);
  }

  #receive(message: ControlMessage): void {
    if (message.type === 'membership' || message.type === 'membership-change') this.#options.membership?.(message);
    else if (message.type === 'drain') this.#options.goaway?.();
    else if (message.type === 'held') this.#reconciler.held(message);
    else if (message.type === 'hung-up') this.#options.tunnels?.hungUp(message, this);
    else if (message.type === 'policy') this.#takePolicy(message);
    else if (message.type === 'renewed') this.#options.renewed?.();
  }

  #takePolicy(rules: PolicyRules): void {
    const { role, events, peer, policy } = this.#options;
    try {
      policy?.(rules);
    } catch (error) {
      events.emit('refused', `${role} link`, peer, error as Error);
    }
  }

  /** Our code threw where it never should. The link ends, and the other side opens another. */
  #fault(error: Error): void {
    const { role, events, peer } = this.#options;
    this.destroy(error);
    events.emit('fault', `${role} link`, peer, error);
  }

  #endOrphan(stream: Http2Stream): void {
    const { role, events, peer } = this.#options;
    events.emit('tunnel:orphaned', role);
    stream.reset(ErrorCode.CANCEL, new SessionLost(`${peer} has lost the tunnel`));
  }
}

const UNDER_WAY = encodeHead({ ':status': 102 });

/** An agent's answer names nothing: its hub knows better. */
const NO_ANSWER: Answer = { agentId: '', sessionId: '', hubId: '', timing: {} };

/** Why nobody waits any more. An attach that nobody waits for must not end the tunnel. */
function abandonment({ resume }: DialRequest): Error {
  const text = 'the dialling side went away';
  return resume?.attach ? new SessionLost(text) : new Error(text);
}
