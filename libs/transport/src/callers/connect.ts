import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { type Guarded, guarding, remoteOf } from '@isthmus/runtime';
import { asDialError, type DialError, NotAuthorised, PlaneEnded, type PlaneEvents, planeEnded } from '@isthmus/tunnel';
import { newDial, type ServeDialOptions, type ServedDial, serveDial, type Waiter } from '../dial/serve-dial.ts';
import { socketEnd } from '../dial/socket-end.ts';
import { answerLast } from '../head/last-answer.ts';
import { proxyStatus } from '../link/head.ts';
import { peerOf } from '../listen/connection-peer.ts';
import { ConnectReader, type ConnectRequest, RequestRefused } from './connect-request.ts';
import { type CallerPeer, denied, type Identify } from './identify.ts';
import { watchCaller } from './pending-caller.ts';

/** How long a caller may take to send its request's head, in milliseconds. */
const HEAD_TIMEOUT = 10_000;

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
  const timer = setTimeout(late, HEAD_TIMEOUT);
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
  answerLast(socket, `${head.join('\r\n')}\r\n\r\n${error.message}\n`);
}
