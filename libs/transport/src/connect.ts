import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { guarding, remoteOf } from '@isthmus/runtime';
import {
  asDialError,
  DialError,
  type Due,
  deadlines,
  NotAuthorised,
  PlaneEnded,
  planeEnded,
  type Tunnel,
} from '@isthmus/tunnel';
import type { Field } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';
import { newDial, type ServeDialOptions, type ServedDial, serve, type Waiter } from './dials.ts';
import { answerLast, copied, quoted, type RequestHead, RequestRefused } from './http1.ts';
import { CHALLENGES, challenged, credentialIn, denied } from './identity.ts';
import { proxyStatus } from './link/dial-heads.ts';
import {
  type CallerIdentity,
  type IdentifyByToken,
  type IdentifyCaller,
  type Judged,
  peerOf,
  type RequestEdge,
} from './listen.ts';
import type { SocketEnd, SocketWatch } from './socket-end.ts';

const NO_LENGTH = /^0+$/;

/** What a CONNECT request asks for (RFC 9110 section 9.3.6). */
interface ConnectRequest {
  /** The request-target. Host is ignored, as in Go's server. */
  readonly target: string;
  readonly traceparent?: string;
  /** The values of Proxy-Authorization. */
  readonly credentials: readonly string[];
  /** The bytes that arrived behind the head: the tunnel's first bytes. */
  readonly rest: Buffer;
}

/** Throws RequestRefused for another request. */
export function readConnect({ method, target, fields, rest }: RequestHead): ConnectRequest {
  if (method !== 'CONNECT') throw new RequestRefused(405, `this port serves CONNECT, not ${quoted(method)}`);
  // It would be in the error that says so, and in logs.
  if (target.includes('@')) throw new RequestRefused(400, 'the target names a user: only HOST:PORT is served');
  const credentials: string[] = [];
  let traceparent: string | undefined;
  for (const [name, value] of fields) {
    if (name === 'transfer-encoding' || (name === 'content-length' && !NO_LENGTH.test(value)))
      throw new RequestRefused(400, 'a CONNECT request has no body');
    if (name === 'proxy-authorization') credentials.push(value);
    if (name === 'traceparent') traceparent ??= copied(value);
  }
  return { target: copied(target), rest, credentials, ...(traceparent !== undefined && { traceparent }) };
}

const ESTABLISHED = 'HTTP/1.1 200 Connection Established\r\n\r\n';

export interface CallerEdgeOptions extends Omit<ServeDialOptions, 'role'> {
  readonly identifyCaller: IdentifyCaller;
  /** Unset: nobody comes in by a token, and `Proxy-Authorization` says nothing. */
  readonly identifyByToken?: IdentifyByToken | undefined;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
}

/**
 * The callers' HTTP CONNECT edge, as API servers and other tools use it. The request-target is the destination, and Host is not. Only the
 * destination's bytes follow the blank line of the 200. A refusal ends its connection: whoever has another credential asks on another.
 */
export function connectEdge(options: CallerEdgeOptions): RequestEdge {
  const edge: Edge = { ...options, role: 'gateway' };
  return {
    serve: (end, head) => new CallerConnection(end, edge).begin(readConnect(head)),
    refuse: (end, error) => refuse(end, asDialError(error), edge),
    fault: (end, error) => endByDefect(end, error, edge),
  };
}

type Edge = CallerEdgeOptions & ServeDialOptions;

/** A defect of ours ends the connection. */
function endByDefect({ stream: socket }: SocketEnd, error: Error, { events }: Edge): void {
  socket.destroy();
  events.emit('fault', 'http-connect', remoteOf(socket), error);
}

function refuse(end: SocketEnd, error: DialError, { events }: Edge): void {
  const why = error.cause instanceof NotAuthorised ? error.cause : error;
  events.emit('refused', 'http-connect', remoteOf(end.stream), why);
  end.forget();
  answerError(end.stream, error);
}

/** A caller's connection: its dial, and then the caller's end of the tunnel. It keeps nothing of its request. */
class CallerConnection implements Waiter, SocketWatch, Due {
  before: Due | undefined;
  behind: Due | undefined;
  due = 0;
  readonly #end: SocketEnd;
  readonly #socket: Socket;
  readonly #edge: Edge;
  /** Whether it is a unix socket's. */
  #isLocal = false;
  /** Gives up what it waits for. Unset once it has its answer. */
  #gone: (() => void) | undefined;
  #dial: ServedDial | undefined;
  /** Its dial, then its tunnel. */
  #carries: { abort(reason: Error): void } | undefined;

  constructor(end: SocketEnd, edge: Edge) {
    this.#end = end;
    this.#socket = end.stream;
    this.#edge = edge;
    edge.events.emit('caller:open', 'http-connect');
    end.whenLeft(() => edge.events.emit('caller:close', 'http-connect'));
  }

  /** @throws DialError */
  begin(asked: ConnectRequest): void {
    const { identifyByToken, identifyCaller } = this.#edge;
    const shown = identifyByToken && credentialIn(asked.credentials, this.#socket);
    const peer = peerOf(this.#socket, this.#cut);
    this.#isLocal = peer.remote === 'uds';
    if (!shown) this.#dialFor(identifyCaller(peer), asked, asked.rest);
    else {
      const identify = (signal: AbortSignal) => identifyByToken(peer, shown, signal);
      guarding((error) => this.fault(error))(() => this.#beginByToken(identify, asked))();
    }
  }

  async #beginByToken(
    identify: (signal: AbortSignal) => Promise<CallerIdentity>,
    asked: ConnectRequest,
  ): Promise<void> {
    const gone = new AbortController();
    this.#awaitAnswer(asked.rest, () => gone.abort());
    try {
      const who = await identify(gone.signal);
      if (gone.signal.aborted) {
        this.#end.forget();
        this.#socket.destroy();
        return;
      }
      this.#dialFor(who, asked, this.#end.take());
    } catch (error) {
      const why = error instanceof NotAuthorised ? challenged(error.dialling(asked.target)) : error;
      refuse(this.#end, asDialError(why), this.#edge);
    }
  }

  /** @param first what has arrived behind the request @throws DialError */
  #dialFor(who: Judged, { target, traceparent }: ConnectRequest, first: Buffer): void {
    if (who instanceof DialError) throw who;
    const { timeout, dial } = this.#edge;
    if (who instanceof NotAuthorised) {
      const why = who.dialling(target);
      throw who.challenge ? challenged(why) : denied(why);
    }
    const { tenant, caller } = who;
    const request = newDial(target, { tenant, timeout }, { via: 'http-connect', ...caller }, traceparent);
    this.#dial = request;
    this.#carries = request.signal;
    this.#awaitAnswer(first, () => request.signal.abort(new Error('the caller went away')));
    void serve(request, dial, this, this.#edge);
  }

  /**
   * Reads the socket while its dial is pending, because a socket that nobody reads does not report that its peer has gone. What arrives early is kept,
   * and an early end is the tunnel's, as in upstream's server.
   */
  #awaitAnswer(first: Buffer, gone: () => void): void {
    this.#gone = gone;
    this.#end.watch = this;
    this.#end.keep(first);
  }

  // As the one that watches the socket. Only a caller that resets its connection, or closes its unix socket, is known to have gone: over TCP a FIN
  // looks the same whether more is read or not.

  ended(): void {
    if (!this.#isLocal) return;
    if (!this.#gone) {
      // The destination of most tunnels ends soon after the caller, and then nobody needs to know. So the look comes a little later.
      this.due = performance.now() + TRANSPORT.closedMs;
      deadlines.enter(this);
      return;
    }
    // On Deno 2.9 an empty write does not find that the peer has closed, so there an end is its going.
    if ('Deno' in globalThis) this.#gone();
    else this.remind();
  }

  closed(): void {
    deadlines.leave(this);
    this.#gone?.();
  }

  /**
   * Ends a unix socket whose caller has closed it for good, as Go's and most others' callers do, instead of its own direction only. Then no
   * write succeeds any more, also not one of nothing, which fails with an error and its stack.
   */
  remind(): void {
    if (this.#socket.writable) this.#socket.write('');
  }

  /** Its credential stands no longer. Who identifies callers keeps this: a function made in `begin` would keep the credential. */
  readonly #cut = (reason: Error) => {
    if (this.#carries) this.#carries.abort(planeEnded(reason, 'credential'));
    else this.#socket.destroy();
  };

  // As the one that waits for the answer to its dial.

  accept(): SocketEnd {
    this.#socket.write(ESTABLISHED);
    this.#gone = undefined;
    if (!this.#isLocal) this.#end.watch = undefined;
    return this.#end;
  }

  begun(tunnel: Tunnel): void {
    this.#carries = tunnel;
  }

  refuse(error: DialError): void {
    const socket = this.#socket;
    this.#end.forget();
    this.#carries = undefined;
    const { aborted, reason } = (this.#dial as ServedDial).signal;
    answerError(socket, aborted && reason instanceof PlaneEnded ? denied(reason) : error);
  }

  unanswered(): void {
    this.#edge.events.emit('dial:undelivered', this.#dial as ServedDial);
    this.#socket.destroy();
  }

  fault(error: Error): void {
    endByDefect(this.#end, error, this.#edge);
  }
}

/**
 * Answers a failed dial. The reason is in the status line too, because an API server shows nothing else. The body has the same text and
 * ends with the connection, as upstream's does.
 */
function answerError(socket: Socket, error: DialError): void {
  answerLast(socket, error.status, refusalFields(error), reasonPhrase(error), `${error.message}\n`);
}

/** What a refusal says beside its status. */
function refusalFields(error: DialError): Field[] {
  const { status } = error;
  const fields: Field[] = [
    ['content-type', 'text/plain; charset=utf-8'],
    ['proxy-status', proxyStatus(error)],
  ];
  if (status === 407) for (const challenge of CHALLENGES) fields.push(['proxy-authenticate', challenge]);
  if (status === 405) fields.push(['allow', 'CONNECT']);
  if (status === 503 || status === 429) fields.push(['retry-after', String(error.retryAfter)]);
  if (error.retryable) fields.push(['isthmus-retryable', '?1']);
  return fields;
}

/** Reason phrases: an API server, and Go's clients, show nothing else of a refusal. */
function reasonPhrase({ status, message }: DialError): string {
  return `${STATUS_CODES[status] ?? 'Error'}: ${message.replace(/[^\x20-\x7e]/g, '?').slice(0, 300)}`;
}
