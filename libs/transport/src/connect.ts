import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type Guarded, guarding, remoteOf } from '@isthmus/runtime';
import { asDialError, DialError, NotAuthorised, PlaneEnded, type PlaneEvents, planeEnded } from '@isthmus/tunnel';
import { TRANSPORT } from './defaults.ts';
import { answerLast, Pieces } from './http1.ts';
import { proxyStatus } from './link/head.ts';
import { newDial, type ServeDialOptions, type ServedDial, serveDial, socketEnd, type Waiter } from './serve-dial.ts';
import { type CallerPeer, denied, type Identify, peerOf } from './tls/certificate.ts';

const HEAD_END = '\r\n\r\n';

const REQUEST_LINE = /^([!#$%&'*+.^`|~\w-]+) ([\x21-\x7e\x80-\xff]+) HTTP\/(\d\.\d)$/;

/** A name without a space before the colon, a value without control characters, and no folding (RFC 9112 section 5). */
const FIELD = /^([!#$%&'*+.^`|~\w-]+):([\t\x20-\x7e\x80-\xff]*)$/;

const NO_LENGTH = /^0+$/;

/** What a CONNECT request asks for. */
interface ConnectRequest {
  /** The request-target. Host cannot override it. */
  readonly target: string;
  readonly traceparent?: string;
  /** The bytes that arrived behind the head: the tunnel's first bytes. */
  readonly rest: Buffer;
}

/** A request that is not served, and the status to answer. */
export class RequestRefused extends DialError {
  readonly #status: number;

  constructor(status: number, message: string) {
    super('http_request_error', message);
    this.#status = status;
  }

  override get status(): number {
    return this.#status;
  }
}

/**
 * Reads the head of one CONNECT request (RFC 9112, RFC 9110 section 9.3.6). A caller's connection has no other HTTP ([why not
 * node:http](docs/adr/0002-one-http2-stream-per-tunnel.md)). Host is ignored, as in Go's server.
 */
export class ConnectReader {
  readonly #seen = new Pieces();

  /** Returns the request when its head is complete. Throws RequestRefused. */
  push(chunk: Buffer): ConnectRequest | undefined {
    const searched = Math.max(0, this.#seen.length - HEAD_END.length + 1);
    const bytes = this.#seen.add(chunk);
    // TLS and noise never contain the end of a head.
    if (!isLetter(bytes[0])) throw new RequestRefused(400, 'not an HTTP request');
    const end = bytes.indexOf(HEAD_END, searched);
    if (end > TRANSPORT.headBytes || (end < 0 && bytes.length > TRANSPORT.headBytes)) {
      throw new RequestRefused(431, `the request's head is longer than ${TRANSPORT.headBytes} bytes`);
    }
    return end < 0 ? undefined : parse(bytes.toString('latin1', 0, end), bytes.subarray(end + HEAD_END.length));
  }
}

function parse(head: string, rest: Buffer): ConnectRequest {
  const [requestLine = '', ...lines] = head.split('\r\n');
  const [, method, target, version] = REQUEST_LINE.exec(requestLine) ?? [];
  if (target === undefined) throw new RequestRefused(400, `not an HTTP request: ${shown(requestLine)}`);
  if (method !== 'CONNECT') throw new RequestRefused(405, `this port serves CONNECT, not ${shown(method)}`);
  if (version !== '1.1') throw new RequestRefused(400, `HTTP/${version} is not served: use HTTP/1.1`);
  const fields = lines.map(readField);
  if (fields.some(promisesBody)) throw new RequestRefused(400, 'a CONNECT request has no body');
  const traceparent = fields.find(([name]) => name === 'traceparent')?.[1];
  return { target: copied(target), rest, ...(traceparent !== undefined && { traceparent: copied(traceparent) }) };
}

type Field = readonly [name: string, value: string];

function promisesBody([name, value]: Field): boolean {
  return name === 'transfer-encoding' || (name === 'content-length' && !NO_LENGTH.test(value));
}

function readField(line: string): Field {
  const [, name, value = ''] = FIELD.exec(line) ?? [];
  if (name === undefined) throw new RequestRefused(400, `not a header field: ${shown(line)}`);
  return [name.toLowerCase(), value.trim()];
}

/** A substring keeps the whole string in memory, and these stay as long as the tunnel. */
function copied(part: string): string {
  return Buffer.from(part, 'latin1').toString('latin1');
}

function isLetter(byte = 0): boolean {
  return (byte >= 0x41 && byte <= 0x5a) || (byte >= 0x61 && byte <= 0x7a);
}

function shown(line = ''): string {
  return JSON.stringify(line.slice(0, 60));
}

interface PendingCaller {
  /** Stops reading. */
  stop(): void;
  /** Stops reading and puts back what arrived. The socket is then paused until it is resumed. */
  putBack(): void;
}

/**
 * Reads a caller's socket while its dial is pending, because a socket that nobody reads does not report that its peer has gone. What
 * arrives early is kept.
 * @param first what has arrived already
 */
function watchCaller(socket: Socket, first: Buffer, gone: () => void): PendingCaller {
  const early: Buffer[] = [];
  let length = 0;
  const read = (chunk: Buffer) => {
    early.push(chunk);
    length += chunk.length;
    if (length >= TRANSPORT.earlyBytes) socket.pause();
  };
  const stop = () => void socket.off('data', read).off('end', gone).off('close', gone);
  if (first.length > 0) read(first);
  socket.on('data', read).on('end', gone).on('close', gone);
  return {
    stop,
    putBack() {
      stop();
      if (length === 0 || socket.destroyed) return;
      socket.pause();
      socket.unshift(Buffer.concat(early));
    },
  };
}

const ESTABLISHED = 'HTTP/1.1 200 Connection Established\r\n\r\n';

export interface CallerEdgeOptions extends Omit<ServeDialOptions, 'role'> {
  readonly identify: Identify;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
}

/**
 * The callers' HTTP CONNECT edge, as API servers use it: HTTP/1.1 only. The request-target is the destination, and Host is not. Only
 * the destination's bytes follow the blank line of the 200.
 */
export function connectEdge(options: CallerEdgeOptions): { accept(socket: Socket, first: Buffer): void } {
  return {
    accept(socket, first) {
      tellOf(socket, options.events);
      readRequest(socket, first, options);
    },
  };
}

/** Outside the code that reads the request: a listener made beside it would keep that code's variables as long as the tunnel. */
function tellOf(socket: Socket, events: PlaneEvents): void {
  events.emit('caller:open', 'http-connect');
  socket.on('close', () => events.emit('caller:close', 'http-connect'));
}

/** Nearly every request arrives in one piece. Only for others does a listener wait for the rest, with a timer. */
function readRequest(socket: Socket, first: Buffer, options: CallerEdgeOptions): void {
  const reader = new ConnectReader();
  const fault = (error: Error) => {
    socket.destroy();
    options.events.emit('fault', 'http-connect', remoteOf(socket), error);
  };
  /** Returns whether there is nothing more to read. */
  const read = (chunk: Buffer): boolean => {
    try {
      const request = reader.push(chunk);
      if (!request) return false;
      const connection = new CallerConnection(socket);
      const dialled = dialOf(request, connection, options);
      serve(dialled, request.rest, connection, options).catch(fault);
    } catch (error) {
      refuse(socket, asDialError(error), options);
    }
    return true;
  };
  if (!read(first)) readRest(socket, read, options, guarding(fault));
}

function readRest(
  socket: Socket,
  read: (chunk: Buffer) => boolean,
  options: CallerEdgeOptions,
  guarded: Guarded,
): void {
  const settle = () => {
    clearTimeout(timer);
    socket.off('data', more).off('end', cut).off('close', settle);
  };
  const more = guarded((chunk: Buffer) => {
    if (read(chunk)) settle();
  });
  const end = (error: DialError) => {
    settle();
    refuse(socket, error, options);
  };
  const late = guarded(() => end(new RequestRefused(408, 'no request in time')));
  const cut = guarded(() => end(new RequestRefused(400, 'the connection ended in the middle of its request')));
  const timer = setTimeout(late, TRANSPORT.connectHeadMs);
  socket.on('data', more).on('end', cut).on('close', settle);
}

function refuse(socket: Socket, error: DialError, { events }: CallerEdgeOptions): void {
  const why = error.cause instanceof NotAuthorised ? error.cause : error;
  events.emit('refused', 'http-connect', remoteOf(socket), why);
  answerError(socket, error);
}

/** A caller's connection. */
class CallerConnection {
  readonly socket: Socket;
  /** Its dial, then its tunnel. */
  carries: { abort(reason: Error): void } | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  end(reason: Error): void {
    if (this.carries) this.carries.abort(planeEnded(reason, 'credential'));
    else this.socket.destroy();
  }
}

/** @throws DialError */
function dialOf(
  { target, traceparent }: ConnectRequest,
  connection: CallerConnection,
  options: CallerEdgeOptions,
): ServedDial {
  const peer: CallerPeer = peerOf(connection.socket, (reason) => connection.end(reason));
  const who = options.identify(peer);
  if (who instanceof NotAuthorised) throw denied(who.dialling(target));
  const { tenant, caller } = who;
  const dialled = newDial(target, { ...options, tenant }, { via: 'http-connect', ...caller }, traceparent);
  connection.carries = dialled.signal;
  return dialled;
}

async function serve(request: ServedDial, first: Buffer, connection: CallerConnection, options: CallerEdgeOptions) {
  const { events } = options;
  const { socket } = connection;
  const watch = watchCaller(socket, first, () => request.signal.abort(new Error('the caller went away')));
  const waiter: Waiter = {
    accept() {
      watch.putBack();
      socket.write(ESTABLISHED);
      if (request.caller?.remote === 'uds') socket.once('end', () => process.nextTick(closeIfClosed, socket));
      return socketEnd(socket);
    },
    refuse(error) {
      watch.stop();
      const { aborted, reason } = request.signal;
      answerError(socket, aborted && reason instanceof PlaneEnded ? denied(reason) : error);
    },
    unanswered() {
      events.emit('dial:undelivered', request);
      socket.destroy();
    },
  };
  connection.carries = await serveDial(request, waiter, { ...options, role: 'gateway' });
  if (socket.isPaused()) socket.resume();
}

/**
 * Ends a unix socket whose caller has closed it for good, as Go's and most others' callers do, instead of its own direction only. Then no
 * write succeeds any more, also not one of nothing. The tunnel must have seen the end before: an end with an error is a reset's.
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
  const { status } = error;
  const reason = error.message.replace(/[^\x20-\x7e]/g, '?').slice(0, 300);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'Error'}: ${reason}`,
    `proxy-status: ${proxyStatus(error)}`,
    'content-type: text/plain; charset=utf-8',
    'connection: close',
  ];
  if (status === 405) head.push('allow: CONNECT');
  if (status === 503 || status === 429) head.push(`retry-after: ${error.retryAfter}`);
  if (error.retryable) head.push('isthmus-retryable: ?1');
  answerLast(socket, `${head.join('\r\n')}\r\n\r\n${error.message}\n`);
}
