import type { Packet } from '@isthmus/proto';
import {
  asDialError,
  DialError,
  type DialErrorCode,
  type Due,
  deadlines,
  type EndUser,
  formatDestination,
  NotAuthorised,
  notAuthorisedIn,
  PlaneEnded,
  planeEnded,
  type TunnelEnd,
} from '@isthmus/tunnel';
import { type PacketSink, type ServerCall, StatusError, type StatusName } from '@isthmus/wire';
import type { CallerEdgeOptions } from '../connect.ts';
import { TRANSPORT } from '../defaults.ts';
import { newDial, type ServedDial, serve, type Waiter } from '../dials.ts';
import { credentialIn, denied, type ProxyCredential } from '../identity.ts';
import type { CallerIdentity, ConnectionPeer, IdentifyByToken, Judged } from '../listen.ts';
import { PROXY_METHOD } from '../packets/mux.ts';
import { closingText } from '../packets/stream.ts';
import type { GrpcService } from './server.ts';

export interface ProxyServiceOptions extends CallerEdgeOptions {
  /**
   * Counts a stream that has not dialled yet among its tenant's pending dials. Returns what to call when it dials or ends.
   * @throws DialError if the tenant has no room for it
   */
  readonly awaitDial?: ((tenant: string) => () => void) | undefined;
}

/** The callers' gRPC edge, as API servers use it: one stream a dial. What `authorization` shows is judged as `Proxy-Authorization` of a CONNECT. */
export function proxyService(options: ProxyServiceOptions): GrpcService {
  const { identifyCaller, identifyByToken } = options;
  return {
    path: PROXY_METHOD,
    serve(call, proven) {
      const shown = identifyByToken ? call.metadata.get('authorization') : [];
      if (!identifyByToken || shown.length === 0) {
        begin(call, proven, options, identifyCaller(call.peer));
        return;
      }
      call.stream.guarded(async () => begin(call, proven, options, await judgedBy(identifyByToken, call, shown)))();
    },
  };
}

async function judgedBy(
  identifyByToken: IdentifyByToken,
  { peer, signal }: ServerCall<ConnectionPeer>,
  shown: readonly string[],
): Promise<Judged> {
  try {
    return await identifyByToken(peer, credentialIn(shown, peer.socket) as ProxyCredential, signal);
  } catch (error) {
    return error instanceof NotAuthorised ? error : asDialError(error);
  }
}

function begin(
  call: ServerCall<ConnectionPeer>,
  proven: (tenant: string) => void,
  options: ProxyServiceOptions,
  who: Judged,
): void {
  const { peer } = call;
  const refused = (why: Error) => options.events.emit('refused', 'callers', peer.remote, why);
  const failed = (why: DialError) => {
    call.fail(new StatusError(STATUS_OF_REFUSAL[why.code] ?? 'ResourceExhausted', why.message));
    refused(notAuthorisedIn(why) ?? why);
  };
  // A wrong token may also be answered with a limit.
  const wrong = notAuthorisedIn(who);
  if (wrong) {
    peer.refused?.(wrong);
    // A caller that did not wait for the verdict has guessed too.
    if (call.over) refused(wrong);
  }
  if (call.over) return;
  if (who instanceof DialError) {
    if (!wrong) peer.refused?.(who);
    failed(who);
    return;
  }
  let dialled: (() => void) | undefined;
  if (!(who instanceof NotAuthorised)) {
    proven(who.tenant);
    try {
      dialled = options.awaitDial?.(who.tenant);
    } catch (error) {
      if (!(error instanceof DialError)) throw error;
      failed(error);
      return;
    }
  }
  new CallerStream(call, who, options, dialled);
}

/** Of a call whose caller cannot be known. */
const STATUS_OF_REFUSAL: { readonly [Code in DialErrorCode]?: StatusName } = {
  http_request_error: 'InvalidArgument',
  http_request_denied: 'Unauthenticated',
};

/** The connection id of each stream's tunnel: a stream carries one. */
const CONNECT_ID = 1n;

type DialRequestPacket = Extract<Packet, { type: 'DIAL_REQ' }>;

/**
 * - `silent`: no DIAL_REQ has come.
 * - `dialling`: its dial has no answer yet.
 * - `open`: its tunnel carries bytes.
 * - `closed`: everything was said, by a refusal or a CLOSE_RSP. The end of the stream is on its way, or the caller's has come.
 */
type State = 'silent' | 'dialling' | 'open' | 'closed';

/**
 * A caller's stream: its dial, and then the caller's end of the tunnel. What comes is passed on as it is read, and a caller whose destination does
 * not take it is held by the stream's window. What is written waits in the HTTP/2 stream.
 */
class CallerStream implements PacketSink, Waiter, TunnelEnd, Due {
  /** ANP's packets know no half-close. */
  readonly halfOpen = false;
  readonly detached = false;
  /** For the deadline of its dial, then of the caller's end of the stream. */
  before: Due | undefined;
  behind: Due | undefined;
  due = performance.now() + TRANSPORT.firstDialMs;
  readonly #call: ServerCall<ConnectionPeer>;
  readonly #who: CallerIdentity | NotAuthorised;
  readonly #edge: ProxyServiceOptions;
  #state: State = 'silent';
  #dialled: (() => void) | undefined;
  /** Why it may not dial, until it was told so. */
  #untold: NotAuthorised | undefined;
  #random = 0n;
  #request: ServedDial | undefined;
  #user: EndUser | undefined;
  #paused = false;
  /** Whether what was written last has to wait for the caller. */
  #full = false;
  /** Called once it waits no more. */
  #whenRoom: (() => void) | undefined;
  #whenFinished: (() => void) | undefined;
  /** The connection id of another tunnel that it was last told of. */
  #stray = 0n;

  /** @param dialled called once it dials, or never will */
  constructor(
    call: ServerCall<ConnectionPeer>,
    who: CallerIdentity | NotAuthorised,
    edge: ProxyServiceOptions,
    dialled: (() => void) | undefined,
  ) {
    this.#call = call;
    this.#who = who;
    this.#edge = edge;
    this.#dialled = dialled;
    if (who instanceof NotAuthorised) this.#untold = who;
    edge.events.emit('caller:open', 'grpc');
    deadlines.enter(this);
    this.#call.start(this);
  }

  // What the call says.

  packet(packet: Packet): void {
    try {
      this.#edge.events.emit('packet', 'gateway', 'received', packet.type);
      if (packet.type === 'DATA') this.#data(packet.connectID, packet.data);
      else if (packet.type === 'CLOSE_REQ') this.#closeRequest(packet.connectID);
      else if (packet.type === 'DIAL_REQ') this.#dialRequest(packet);
      else if (packet.type === 'DIAL_CLS' && packet.random === this.#random) this.#giveUp();
    } catch (error) {
      this.fault(error as Error);
    }
  }

  drain(): void {
    try {
      this.#full = false;
      const then = this.#whenRoom;
      this.#whenRoom = undefined;
      if (then) then();
      else this.#user?.onDrain();
    } catch (error) {
      this.fault(error as Error);
    }
  }

  closed(error?: StatusError): void {
    const { events } = this.#edge;
    try {
      const state = this.#state;
      this.#state = 'closed';
      if (state === 'dialling') this.#request?.signal.abort(reasonOf(error));
      else if (state === 'open') this.#tellClosed(error && reasonOf(error), !error);
      if (error) events.emit('packet:error', 'gateway', error.code);
      this.#setPaused(false);
    } catch (thrown) {
      this.fault(thrown as Error);
    }
    this.#waitsNoMore();
    if (this.#untold) this.#refused(this.#untold);
    events.emit('caller:close', 'grpc');
  }

  #data(connectID: bigint, data: Uint8Array): void {
    if (connectID === CONNECT_ID && this.#user) {
      if (data.length > 0) this.#user.onData(data);
      // Go's peers also ignore a connection id of 0: a packet without an id decodes to it.
    } else if (connectID !== 0n) this.#answerUnknown(connectID, 'unrecognized connectID');
  }

  /** Callers wait for the CLOSE_RSP, up to 10 s in konnectivity-client, and read nothing after it. */
  #closeRequest(connectID: bigint): void {
    if (connectID === CONNECT_ID && this.#user) this.#close();
    else this.#answerUnknown(connectID, 'Unknown connectID');
  }

  /** Answers once for several packets of one connection, and not at all while the answer would have to wait. */
  #answerUnknown(connectID: bigint, error: string): void {
    if (connectID === this.#stray || this.#full) return;
    this.#stray = connectID;
    this.#send({ type: 'CLOSE_RSP', connectID, error });
  }

  #dialRequest(packet: DialRequestPacket): void {
    const isFirst = this.#state === 'silent';
    // The same dial was sent twice: the answer to the first one answers both.
    if (!isFirst && this.#state !== 'closed' && packet.random === this.#random) return;
    try {
      if (!isFirst) throw oneTunnelOnly();
      const who = this.#who;
      const { timeout } = this.#edge;
      const { protocol, address } = packet;
      const isKnown = !(who instanceof NotAuthorised);
      const caller = isKnown ? ({ via: 'grpc', ...who.caller } as const) : undefined;
      const traceparent = this.#call.metadata.first('traceparent');
      this.#request = newDial(address, { tenant: isKnown ? who.tenant : '', timeout, protocol }, caller, traceparent);
    } catch (error) {
      this.#refused(error as Error, 'gateway packets');
      this.#answer(packet.random, asDialError(error));
      if (isFirst) this.#finish();
      return;
    }
    this.#random = packet.random;
    this.#state = 'dialling';
    this.#waitsNoMore();
    const why = this.#untold;
    if (!why) {
      const { events, dial } = this.#edge;
      this.#call.stream.account(this.#request.tenant);
      void serve(this.#request, dial, this, { role: 'gateway', events });
      return;
    }
    // The caller reads why, and its other streams go on.
    this.#untold = undefined;
    this.#refused(why.dialling(formatDestination(this.#request.destination)));
    this.refuse(denied(why));
  }

  /** It may cross the DIAL_RSP. Then nothing else will ever close the tunnel. */
  #giveUp(): void {
    const reason = new Error('caller gave up its dial');
    if (this.#state === 'dialling') this.#request?.signal.abort(reason);
    else this.abort(reason);
  }

  // As the one that waits for the answer to its dial.

  accept(): this {
    this.#state = 'open';
    this.#send({ type: 'DIAL_RSP', random: this.#random, connectID: CONNECT_ID, error: '' });
    return this;
  }

  refuse(error: DialError): void {
    if (!this.#request?.signal.aborted) this.#answer(this.#random, error);
    this.#finish();
  }

  unanswered(): void {
    this.#edge.events.emit('dial:undelivered', this.#request as ServedDial);
    this.#finish();
  }

  fault(error: Error): void {
    this.#call.destroy(planeEnded(error));
    this.#edge.events.emit('fault', 'gateway packets', this.#call.remote, error);
  }

  // As the end of its tunnel.

  use(user: EndUser): void {
    this.#user = user;
  }

  write(bytes: Uint8Array): boolean {
    if (this.#state !== 'open') return true;
    const most = TRANSPORT.packetsDataBytes;
    for (let at = 0; at < bytes.length; at += most) {
      const data = bytes.length <= most ? bytes : bytes.subarray(at, at + most);
      this.#send({ type: 'DATA', connectID: CONNECT_ID, error: '', data });
    }
    return !this.#full;
  }

  /** Closes once a slow caller has made room for the CLOSE_RSP: until then, its tunnel counts. */
  finish(): void {
    if (this.#full && this.#state === 'open') this.#whenRoom = () => this.#close();
    else this.#close();
  }

  pause(): void {
    if (this.#state !== 'open') return;
    this.#setPaused(true);
    this.#call.pause();
  }

  resume(): void {
    this.#setPaused(false);
    this.#call.resume();
  }

  get writableLength(): number {
    return this.#full ? this.#call.stream.pending : 0;
  }

  whenFinished(then: () => void): void {
    if (this.#state === 'closed') then();
    else this.#whenFinished = then;
  }

  whenDelivered(then: () => void): void {
    if (this.#full && this.#state === 'open') this.#whenRoom = then;
    else then();
  }

  close(): void {
    this.#close('', undefined, false);
  }

  abort(reason: Error): void {
    this.#close(closingText(reason), reason, false);
  }

  /** @param ended whether it was closed in good order, by either side */
  #close(text = '', failure?: Error, ended = true): void {
    if (this.#state !== 'open') return;
    this.#send({ type: 'CLOSE_RSP', connectID: CONNECT_ID, error: text });
    this.#finish();
    const then = this.#whenFinished;
    this.#whenFinished = undefined;
    then?.();
    this.#tellClosed(failure, ended);
  }

  #tellClosed(failure: Error | undefined, ended: boolean): void {
    const user = this.#user;
    this.#user = undefined;
    // What waited to be sent has no reader any more, and must not keep the other side from its end.
    if (this.#full) user?.onDrain();
    if (ended) user?.onEnd();
    user?.onClose(failure);
  }

  // What it says.

  #answer(random: bigint, { message }: DialError): void {
    this.#send({ type: 'DIAL_RSP', random, connectID: 0n, error: message });
  }

  #send(packet: Packet): void {
    if (this.#state === 'closed') return;
    this.#edge.events.emit('packet', 'gateway', 'sent', packet.type);
    this.#full = !this.#call.send(packet);
  }

  /** Ends the stream behind what was sent, in the same write, while the caller still reads. A caller that does not end it in time is cut off. */
  #finish(): void {
    if (this.#state === 'closed') return;
    this.#state = 'closed';
    if (this.#paused) this.resume();
    this.due = performance.now() + TRANSPORT.packetsCloseMs;
    deadlines.enter(this);
    // Last, because the stream may close at once.
    this.#call.end();
  }

  remind(): void {
    this.#call.stream.guarded(() => this.#late())();
  }

  #late(): void {
    if (this.#state === 'closed') {
      this.#call.destroy(new Error('stream not closed in time'));
      return;
    }
    const error = new Error(`no dial within ${TRANSPORT.firstDialMs / 1000} s`);
    const isTold = this.#untold === undefined;
    this.#call.destroy(error);
    if (isTold) this.#refused(error);
  }

  #waitsNoMore(): void {
    deadlines.leave(this);
    this.#dialled?.();
    this.#dialled = undefined;
  }

  #refused(why: Error, where = 'callers'): void {
    this.#edge.events.emit('refused', where, this.#call.remote, why);
  }

  #setPaused(now: boolean): void {
    if (now === this.#paused) return;
    this.#paused = now;
    this.#edge.events.emit(now ? 'receive:full' : 'receive:free', 'gateway');
  }
}

function oneTunnelOnly(): DialError {
  const text = 'this stream carries one tunnel only: open another stream for another dial';
  return new DialError('http_request_error', text);
}

/** Why the dial or tunnel of a stream ends with it. @param error unset if it ended in good order */
function reasonOf(error: StatusError | undefined): Error {
  if (error?.cause instanceof PlaneEnded) return error.cause;
  return new Error(`caller went away: ${error?.message ?? 'stream ended'}`);
}
