import type { Socket } from 'node:net';
import { type Guarded, guarding, remoteOf } from '@isthmus/runtime';
import {
  asDialError,
  type DialError,
  type Due,
  deadlines,
  NotAuthorised,
  PlaneEnded,
  type PlaneEvents,
  planeEnded,
} from '@isthmus/tunnel';
import type { Field } from '@isthmus/wire';
import { TRANSPORT } from './defaults.ts';
import { newDial, type ServeDialOptions, type ServedDial, serveDial, type Waiter } from './dial-to-tunnel.ts';
import { answerLast, copied, fieldOf, HEAD_END, Pieces, quoted } from './http1.ts';
import { proxyStatus } from './link/dial-heads.ts';
import type { Accept } from './listen.ts';
import {
  CHALLENGES,
  challenged,
  credentialIn,
  type ProxyCredential,
  RequestRefused,
  reasonPhrase,
} from './proxy-authorization.ts';
import type { SocketEnd, SocketWatch } from './socket-end.ts';
import {
  type CallerIdentity,
  type ConnectionPeer,
  denied,
  type IdentifyByToken,
  type IdentifyCaller,
  peerOf,
} from './tls/certificate.ts';

const REQUEST_LINE = /^([!#$%&'*+.^`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/;

const NO_LENGTH = /^0+$/;

/** What a CONNECT request asks for. */
interface ConnectRequest {
  /** The request-target. Host cannot override it. */
  readonly target: string;
  readonly traceparent?: string;
  /** The values of Proxy-Authorization. */
  readonly credentials: readonly string[];
  /** Whether the caller may ask again on this connection after a refusal. */
  readonly keepsAlive: boolean;
  /** The bytes that arrived behind the head: the tunnel's first bytes. */
  readonly rest: Buffer;
}

/**
 * Reads the head of one CONNECT request (RFC 9112, RFC 9110 section 9.3.6). A caller's connection has no other HTTP ([why not
 * node:http](docs/adr/0002-one-http2-stream-per-tunnel.md)). Host is ignored, as in Go's server.
 */
export class ConnectReader {
  readonly #seen = new Pieces();

  /** Whether it holds more of a head than what anyone may have on the way. */
  get isLong(): boolean {
    return this.#seen.length > TRANSPORT.headBytes;
  }

  /** Returns the request when its head is complete. Throws RequestRefused. */
  push(chunk: Buffer): ConnectRequest | undefined {
    const searched = Math.max(0, this.#seen.length - HEAD_END.length + 1);
    const bytes = this.#seen.add(chunk);
    // TLS and noise never contain the end of a head.
    if (!isLetter(bytes[0])) throw new RequestRefused(400, 'not an HTTP request');
    const end = bytes.indexOf(HEAD_END, searched);
    const most = TRANSPORT.connectHeadBytes;
    if (end > most || (end < 0 && bytes.length > most))
      throw new RequestRefused(431, `the request's head is longer than ${most} bytes`);
    return end < 0 ? undefined : parse(bytes.toString('latin1', 0, end), bytes.subarray(end + HEAD_END.length));
  }
}

function parse(head: string, rest: Buffer): ConnectRequest {
  const [requestLine = '', ...lines] = head.split('\r\n');
  const [, method, target, version] = REQUEST_LINE.exec(requestLine) ?? [];
  if (target === undefined) throw new RequestRefused(400, `not an HTTP request: ${shown(requestLine)}`);
  if (method !== 'CONNECT') throw new RequestRefused(405, `this port serves CONNECT, not ${shown(method)}`);
  if (version !== '1.1' && version !== '1.0')
    throw new RequestRefused(400, `HTTP/${version} is not served: use HTTP/1.1`);
  checkTarget(target);
  const fields = lines.map(readField);
  if (fields.some(promisesBody)) throw new RequestRefused(400, 'a CONNECT request has no body');
  const traceparent = fields.find(([name]) => name === 'traceparent')?.[1];
  return {
    target: copied(target),
    rest,
    credentials: fields.flatMap(([name, value]) => (name === 'proxy-authorization' ? [value] : [])),
    keepsAlive: version === '1.1' && !fields.some(closes),
    ...(traceparent !== undefined && { traceparent: copied(traceparent) }),
  };
}

/** @throws RequestRefused */
function checkTarget(target: string): void {
  // It would be in the error that says so, and in logs.
  if (target.includes('@')) throw new RequestRefused(400, 'the target names a user: only HOST:PORT is served');
}

function promisesBody([name, value]: Field): boolean {
  return name === 'transfer-encoding' || (name === 'content-length' && !NO_LENGTH.test(value));
}

/** `Proxy-Connection` is what curl and others call the field towards a proxy. */
function closes([name, value]: Field): boolean {
  return (name === 'connection' || name === 'proxy-connection') && /\bclose\b/i.test(value);
}

function readField(line: string, index: number): Field {
  const field = fieldOf(line);
  // A folded line, or one with a space before its colon, may hold a token.
  if (!field) throw new RequestRefused(400, `line ${index + 2} of the head is not a header field`);
  return field;
}

function isLetter(byte = 0): boolean {
  return (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
}

/** Without what may be a password: what stands before an @, or behind a line's end. */
function shown(line = ''): string {
  const [first = ''] = line.replace(/\S*@/g, '...@').split(/[\r\n]/);
  return quoted(first);
}

/**
 * Reads a caller's socket while its dial is pending, because a socket that nobody reads does not report that its peer has gone. What
 * arrives early is kept, and an early end is the tunnel's, as in upstream's server. Only a caller that resets its
 * connection, or closes its unix socket, is known to have gone: over TCP a FIN looks the same whether more is read or not.
 * @param first what has arrived already
 */
function awaitAnswer(end: SocketEnd, first: Buffer, gone: () => void): void {
  const { stream: socket } = end;
  const ended = () => {
    if (remoteOf(socket) !== 'uds') return;
    // On Deno 2.9 an empty write does not find that the peer has closed, so there an end is its going.
    if ('Deno' in globalThis) gone();
    else closeIfClosed(socket);
  };
  end.watch = { ended, closed: gone };
  end.keep(first);
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
 * The callers' HTTP CONNECT edge, as API servers and other tools use it: HTTP/1.1, or 1.0. The request-target is the destination, and Host is not. Only
 * the destination's bytes follow the blank line of the 200.
 */
export function connectEdge(options: CallerEdgeOptions): Accept {
  const edge: Edge = { ...options, role: 'gateway' };
  return (end, first) => readRequest(new CallerConnection(end, edge.events), first, edge);
}

type Edge = CallerEdgeOptions & ServeDialOptions;

/**
 * Nearly every request arrives in one piece. Only for others does a listener wait for the rest, with a timer.
 * @param refusals how often the caller was asked for a token
 */
function readRequest(connection: CallerConnection, first: Buffer, options: Edge, refusals = 0): void {
  const { socket } = connection;
  const reader = new ConnectReader();
  const fault = (error: Error) => endByDefect(socket, error, options);
  /** Returns whether there is nothing more to read. */
  const read = (chunk: Buffer): boolean => {
    let request: ConnectRequest | undefined;
    try {
      request = reader.push(chunk);
      if (!request) return false;
      begin(request, connection, options, refusals);
    } catch (error) {
      refuse(connection, asDialError(error), options, request && { ...request, refusals });
    }
    return true;
  };
  if (first.length > 0 && read(first)) return;
  readRest(connection, { read, isLong: () => reader.isLong, again: refusals > 0 }, options, guarding(fault));
}

/** A defect of ours ends the connection. */
function endByDefect(socket: Socket, error: Error, { events }: Edge): void {
  socket.destroy();
  events.emit('fault', 'http-connect', remoteOf(socket), error);
}

interface Reading {
  readonly read: (chunk: Buffer) => boolean;
  readonly isLong: () => boolean;
  /** Whether it is not the connection's first request: then there need not be one. */
  readonly again: boolean;
}

/** Heads longer than `headBytes` that are on their way. */
let longHeads = 0;

function readRest(
  connection: CallerConnection,
  { read, isLong, again }: Reading,
  options: Edge,
  guarded: Guarded,
): void {
  const { socket } = connection;
  let begun = !again;
  let long = false;
  const settle = () => {
    clearTimeout(timer);
    if (long) longHeads--;
    long = false;
  };
  const look = () => {
    if (long || !isLong()) return;
    if (longHeads >= TRANSPORT.longHeads) {
      const why = `the request's head is longer than ${TRANSPORT.headBytes} bytes, and too many such heads are on their way: try again`;
      end(new RequestRefused(503, why));
      return;
    }
    long = true;
    longHeads++;
  };
  const more = guarded((chunk: Buffer) => {
    begun = true;
    if (read(chunk)) settle();
    else look();
  });
  const end = (error: DialError) => {
    settle();
    if (begun) refuse(connection, error, options);
    else socket.destroy();
  };
  const late = guarded(() => end(new RequestRefused(408, 'no request in time')));
  const cut = guarded(() => end(new RequestRefused(400, 'the connection ended in the middle of its request')));
  const timer = setTimeout(late, TRANSPORT.connectHeadMs);
  connection.end.hear({ onData: more, onEnd: cut, onClose: settle });
  look();
}

/** A refused request after which the caller may ask again, and how often it was asked for a token before. */
interface Refused extends Pick<ConnectRequest, 'keepsAlive' | 'rest'> {
  readonly refusals: number;
}

function refuse(connection: CallerConnection, error: DialError, options: Edge, refused?: Refused): void {
  const { socket } = connection;
  const why = error.cause instanceof NotAuthorised ? error.cause : error;
  options.events.emit('refused', 'http-connect', remoteOf(socket), why);
  const refusals = (refused?.refusals ?? 0) + 1;
  if (error.status !== 407 || !refused?.keepsAlive || refusals >= TRANSPORT.challenges) {
    connection.end.forget();
    answerError(socket, error);
    return;
  }
  if (socket.destroyed || !socket.writable) return;
  // Go, curl and others ask again on the same connection.
  socket.write(answerOf(error, 'keep-alive'));
  readRequest(connection, refused.rest, options, refusals);
}

/** A caller's connection. */
class CallerConnection {
  readonly socket: Socket;
  readonly end: SocketEnd;
  /** Its dial, then its tunnel. */
  carries: { abort(reason: Error): void } | undefined;

  constructor(end: SocketEnd, events: PlaneEvents) {
    this.end = end;
    this.socket = end.stream;
    events.emit('caller:open', 'http-connect');
    end.whenLeft(() => events.emit('caller:close', 'http-connect'));
  }

  cut(reason: Error): void {
    if (this.carries) this.carries.abort(planeEnded(reason, 'credential'));
    else this.socket.destroy();
  }
}

/** @throws DialError */
function begin(request: ConnectRequest, connection: CallerConnection, options: Edge, refusals: number): void {
  const { identifyByToken } = options;
  const shown = identifyByToken && credentialIn(request.credentials, connection.socket);
  if (shown) {
    const { socket } = connection;
    const asked = beginByToken(request, connection, options, { shown, identifyByToken, refusals });
    asked.catch((error) => endByDefect(socket, error, options));
    return;
  }
  const who = options.identifyCaller(peerOfConnection(connection));
  dialFor(dialOf(request, who, connection, options), request.rest, connection, options);
}

interface ByToken {
  readonly shown: ProxyCredential;
  readonly identifyByToken: IdentifyByToken;
  readonly refusals: number;
}

async function beginByToken(
  request: ConnectRequest,
  connection: CallerConnection,
  options: Edge,
  { shown, identifyByToken, refusals }: ByToken,
): Promise<void> {
  const { socket, end } = connection;
  const gone = new AbortController();
  awaitAnswer(end, request.rest, () => gone.abort());
  try {
    const who = await identifyByToken(peerOfConnection(connection), shown, gone.signal);
    if (gone.signal.aborted) {
      end.forget();
      socket.destroy();
      return;
    }
    const dialled = dialOf(request, who, connection, options);
    dialFor(dialled, end.take(), connection, options);
  } catch (error) {
    const rest = end.take();
    const { target } = request;
    const keepsAlive = request.keepsAlive && !gone.signal.aborted && !socket.readableEnded;
    const why = error instanceof NotAuthorised ? challenged(error.dialling(target)) : asDialError(error);
    refuse(connection, why, options, { keepsAlive, rest, refusals });
  }
}

function peerOfConnection(connection: CallerConnection): ConnectionPeer {
  return peerOf(connection.socket, (reason) => connection.cut(reason));
}

/** @throws DialError */
function dialOf(
  request: ConnectRequest,
  who: CallerIdentity | NotAuthorised,
  connection: CallerConnection,
  options: Edge,
): ServedDial {
  const { target, traceparent } = request;
  if (who instanceof NotAuthorised) {
    const why = who.dialling(target);
    throw who.challenge ? challenged(why) : denied(why);
  }
  const { tenant, caller } = who;
  const via = { via: 'http-connect' as const, ...caller };
  const dialled = newDial(target, { tenant, timeout: options.timeout }, via, traceparent);
  connection.carries = dialled.signal;
  return dialled;
}

function dialFor(request: ServedDial, first: Buffer, connection: CallerConnection, options: Edge): void {
  const { events } = options;
  const { socket, end } = connection;
  awaitAnswer(end, first, () => request.signal.abort(new Error('the caller went away')));
  const waiter: Waiter = {
    accept() {
      socket.write(ESTABLISHED);
      end.watch = request.caller?.remote === 'uds' ? lookOnceEnded(socket) : undefined;
      return end;
    },
    begun(tunnel) {
      connection.carries = tunnel;
    },
    refuse(error) {
      end.forget();
      connection.carries = undefined;
      const { aborted, reason } = request.signal;
      answerError(socket, aborted && reason instanceof PlaneEnded ? denied(reason) : error);
      if (socket.isPaused()) socket.resume();
    },
    unanswered() {
      events.emit('dial:undelivered', request);
      socket.destroy();
    },
    fault: (error) => endByDefect(socket, error, options),
  };
  void serveDial(request, waiter, options);
}

/** The destination of most tunnels ends soon after the caller, and then nobody needs to know. So the look comes a little later. */
function lookOnceEnded(socket: Socket): SocketWatch {
  const look: Due = { before: undefined, behind: undefined, due: 0, remind: () => closeIfClosed(socket) };
  return {
    ended() {
      look.due = performance.now() + TRANSPORT.closedMs;
      deadlines.enter(look);
    },
    closed: () => deadlines.leave(look),
  };
}

/**
 * Ends a unix socket whose caller has closed it for good, as Go's and most others' callers do, instead of its own direction only. Then no
 * write succeeds any more, also not one of nothing, which fails with an error and its stack.
 */
function closeIfClosed(socket: Socket): void {
  if (socket.writable) socket.write('');
}

/**
 * Answers a failed dial. The reason is in the status line too, because an API server shows nothing else. The body has the same text and
 * ends with the connection, as upstream's does.
 */
function answerError(socket: Socket, error: DialError): void {
  if (socket.destroyed || !socket.writable) return;
  answerLast(socket, answerOf(error, 'close'));
}

function answerOf(error: DialError, connection: 'close' | 'keep-alive'): string {
  const body = `${error.message}\n`;
  const head = [
    `HTTP/1.1 ${error.status} ${reasonPhrase(error)}`,
    'content-type: text/plain; charset=utf-8',
    `connection: ${connection}`,
  ];
  if (connection === 'keep-alive') head.push(`content-length: ${Buffer.byteLength(body)}`);
  for (const [name, value] of refusalFields(error)) head.push(`${name}: ${value}`);
  return `${head.join('\r\n')}\r\n\r\n${body}`;
}

/** What a refusal says beside its status. */
function refusalFields(error: DialError): Field[] {
  const { status } = error;
  const fields: Field[] = [['proxy-status', proxyStatus(error)]];
  if (status === 407) for (const challenge of CHALLENGES) fields.push(['proxy-authenticate', challenge]);
  if (status === 405) fields.push(['allow', 'CONNECT']);
  if (status === 503 || status === 429) fields.push(['retry-after', String(error.retryAfter)]);
  if (error.retryable) fields.push(['isthmus-retryable', '?1']);
  return fields;
}
