import http, { type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';
import {
  asDialError,
  type Caller,
  type Dial,
  DialError,
  type DialRequest,
  type PlaneEvents,
  parseDestination,
  Tunnel,
} from '@isthmus/tunnel';
import { newDialId } from './dial-id.ts';
import { watchCaller } from './early-bytes.ts';
import { proxyStatus } from './link/head.ts';
import { remoteOf } from './listen.ts';
import { peerSubject } from './tls.ts';

/** How long a caller may take to send its request's head, in milliseconds. */
const HEAD_TIMEOUT = 10_000;

/** How long a refused caller may take to read why and go, in milliseconds. */
const REFUSED_FOR = 1000;

export interface ConnectEdgeOptions {
  readonly dial: Dial;
  readonly tenant: string;
  readonly events: PlaneEvents;
  /** How long a dial may take, in milliseconds. */
  readonly timeout: number;
}

/**
 * The callers' HTTP CONNECT edge, as API servers use it: HTTP/1.1 only, the request-target is the destination (Host is
 * not), and after the 200's blank line come the destination's bytes alone.
 */
export function connectEdge(options: ConnectEdgeOptions): { accept(socket: Socket): void } {
  const { events } = options;
  const heads = new Map<Duplex, NodeJS.Timeout>();
  const headDone = (socket: Duplex) => {
    clearTimeout(heads.get(socket));
    heads.delete(socket);
  };
  const refused = (socket: Socket, error: DialError, status?: number) => {
    headDone(socket);
    events.emit('refused', 'http-connect', remoteOf(socket), error);
    answerError(socket, error, status);
  };
  const server = http.createServer({ keepAlive: false });
  server.on('request', (request, response) => {
    headDone(request.socket);
    const text = `this port takes CONNECT, not ${request.method}`;
    events.emit('refused', 'http-connect', remoteOf(request.socket), new Error(text));
    response.writeHead(405, { allow: 'CONNECT', connection: 'close' }).end(`${text}\n`);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const status = error.code === 'HPE_HEADER_OVERFLOW' ? 431 : 400;
    refused(socket as Socket, new DialError('http_request_error', error.message), status);
  });
  server.on('connect', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    const socket = stream as Socket;
    headDone(socket);
    if (head.length > 0) socket.unshift(head);
    void serve(request, socket, options);
  });
  return {
    accept(socket) {
      events.emit('caller:open', 'http-connect');
      const late = () => refused(socket, new DialError('http_request_error', 'no request in time'), 408);
      heads.set(socket, setTimeout(late, HEAD_TIMEOUT));
      socket.once('close', () => {
        headDone(socket);
        events.emit('caller:close', 'http-connect');
      });
      server.emit('connection', socket);
    },
  };
}

async function serve(request: IncomingMessage, socket: Socket, options: ConnectEdgeOptions): Promise<void> {
  const { dial, events } = options;
  const abandoned = new AbortController();
  let dialled: DialRequest;
  try {
    dialled = readRequest(request, socket, options, abandoned.signal);
  } catch (error) {
    events.emit('refused', 'http-connect', remoteOf(socket), error as Error);
    answerError(socket, asDialError(error));
    return;
  }
  const putBack = watchCaller(socket, () => abandoned.abort());
  try {
    const established = await dial(dialled);
    if (abandoned.signal.aborted) {
      // The dial itself succeeded, and its answer has nobody to go to.
      events.emit('dial:failure', 'send_rsp', established.dial);
      established.end.abort(new Error('the caller went away'));
      socket.destroy();
      return;
    }
    putBack();
    socket.write('HTTP/1.1 200 Connection Established\r\n\r\n');
    const end = { stream: socket, halfOpen: true, abort: () => void socket.destroy() };
    new Tunnel('gateway', dialled, end, established, events);
  } catch (error) {
    putBack();
    answerError(socket, asDialError(error));
  }
}

function readRequest(
  request: IncomingMessage,
  socket: Socket,
  { tenant, timeout }: ConnectEdgeOptions,
  signal: AbortSignal,
): DialRequest {
  const { headers, httpVersion, url = '' } = request;
  if (httpVersion !== '1.1')
    throw new DialError('http_request_error', `HTTP/${httpVersion} is not served: use HTTP/1.1`);
  if (Number(headers['content-length'] ?? 0) > 0 || headers['transfer-encoding'] !== undefined) {
    throw new DialError('http_request_error', 'a CONNECT request has no body');
  }
  const { traceparent } = headers;
  return {
    id: newDialId(),
    tenant,
    destination: parseDestination(url),
    deadline: performance.now() + timeout,
    caller: callerOf(socket),
    signal,
    ...(typeof traceparent === 'string' && { traceparent }),
  };
}

function callerOf(socket: Socket): Caller {
  const subject = socket instanceof TLSSocket ? peerSubject(socket) : undefined;
  const remote = remoteOf(socket);
  return { via: 'http-connect', identity: subject ?? remote, remote };
}

/**
 * Answers a failed dial. The reason stands in the status line too, since that is all an API server shows of it; the body
 * holds the same text and ends with the connection, as upstream's does.
 */
function answerError(socket: Socket, error: DialError, status = error.status): void {
  if (socket.destroyed || !socket.writable) return;
  const reason = error.message.replace(/[^\x20-\x7e]/g, '?').slice(0, 300);
  const head = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status] ?? 'Error'}: ${reason}`,
    `proxy-status: ${proxyStatus(error)}`,
    'content-type: text/plain; charset=utf-8',
    'connection: close',
  ];
  if (status === 503) head.push(`retry-after: ${error.retryAfter}`);
  socket.end(`${head.join('\r\n')}\r\n\r\n${error.message}\n`);
  // Drain what the caller still sends, or the close would be a reset that overtakes the answer.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), REFUSED_FOR);
  socket.once('close', () => clearTimeout(timer));
}
