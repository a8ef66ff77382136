import { readFileSync, statSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls';
import type { Identity } from '@isthmus/certificates/testing';
import { within } from '@isthmus/runtime/testing';
import type { Scope } from './scope.ts';

/** Where a plane accepts callers: a unix socket, plain TCP on 127.0.0.1, or TLS with a client's certificate. */
export type Via = { readonly uds: string } | { readonly port: number; readonly host?: string } | TlsVia;

export interface TlsVia {
  readonly port: number;
  readonly host?: string;
  readonly ca: string;
  readonly identity?: Identity;
  /** What is sent as SNI, and whose certificate is expected. Default: localhost. */
  readonly serverName?: string;
}

export interface ConnectRequest {
  readonly via: Via;
  /** `host:port`, the request-target. */
  readonly destination: string;
  /** Header lines added to `Host: 127.0.0.1`, which is what API servers send. */
  readonly headers?: readonly string[];
  /** Sent in the same write, after the head. */
  readonly early?: string | Uint8Array;
  readonly deadline?: number;
}

export interface ConnectAnswer {
  readonly status: number;
  /** The reason phrase. */
  readonly reason: string;
  /** By lower-case name; repeated ones joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  /** For a refusal: everything up to the end of the connection. Empty for a tunnel. */
  readonly body: string;
  /** What came in the same read, after the head of a 200. An API server fails on any such byte. */
  readonly head: Buffer;
  /** The tunnel, paused; allowHalfOpen. */
  readonly socket: Socket;
}

/** Connects to a plane's edge. Returns the socket once it is connected, after the TLS handshake if there is one. */
export async function open(scope: Scope, via: Via, deadline?: number): Promise<Socket> {
  const socket = openSocket(via);
  scope.defer(() => socket.destroy());
  socket.on('error', () => {});
  const event = 'ca' in via ? 'secureConnect' : 'connect';
  const opened = new Promise<void>((resolve, reject) => {
    socket.once(event, () => resolve());
    socket.once('error', reject);
    socket.once('close', () => reject(new Error('closed before it was open')));
  });
  await within(opened, { ...(deadline && { deadline }), what: `a connection to ${describe(via)}` });
  return socket;
}

const contexts = new Map<string, SecureContext>();

/** Begins to connect. What is written before it is connected, and through a handshake if there is one, is sent then. */
export function openSocket(via: Via): Socket {
  if ('uds' in via) return connectTcp({ path: via.uds, allowHalfOpen: true });
  const { port, host = '127.0.0.1' } = via;
  const tcp = connectTcp({ port, host, allowHalfOpen: true, noDelay: true });
  if (!('ca' in via)) return tcp;
  const { serverName: servername = 'localhost' } = via;
  // As an API server does: no ALPN.
  const socket = connectTls({ socket: tcp, servername, secureContext: contextOf(via) });
  tcp.on('error', (error) => socket.destroy(error));
  return socket;
}

/** One for what the files are now: a load would read and parse them again for each dial. */
function contextOf({ ca, identity }: TlsVia): SecureContext {
  const paths = [ca, identity?.cert, identity?.key];
  const now = paths.map((path) => path && stateOf(path)).join();
  const known = contexts.get(now);
  if (known) return known;
  const files = paths.map((path) => path && readFileSync(path, 'latin1'));
  const made = createSecureContext(
    Object.fromEntries(['ca', 'cert', 'key'].map((name, index) => [name, files[index]])),
  );
  contexts.set(now, made);
  return made;
}

function stateOf(path: string): string {
  const { ino, size, mtimeMs } = statSync(path);
  return `${path} ${ino} ${size} ${mtimeMs}`;
}

export function describe(via: Via): string {
  return 'uds' in via ? via.uds : `${via.host ?? '127.0.0.1'}:${via.port}`;
}

/** Asks for a tunnel with HTTP CONNECT, as an API server does. Returns the answer, whatever it is. */
export async function connectThrough(scope: Scope, request: ConnectRequest): Promise<ConnectAnswer> {
  const { via, destination, headers = [], early = '', deadline } = request;
  const wait = { ...(deadline && { deadline }), what: `an answer to CONNECT ${destination}` };
  const socket = await open(scope, via, deadline);
  const lines = [`CONNECT ${destination} HTTP/1.1`, 'Host: 127.0.0.1', ...headers, '', ''];
  socket.write(Buffer.concat([Buffer.from(lines.join('\r\n')), Buffer.from(early as Uint8Array)]));
  return within(readAnswer(socket), wait);
}

/** Returns a tunnel, or throws the refusal. A destination that sends first may be as fast as the answer: its bytes come first. */
export async function tunnelThrough(scope: Scope, request: ConnectRequest): Promise<Socket> {
  const { status, reason, body, head, socket } = await connectThrough(scope, request);
  if (status !== 200) throw new Error(`CONNECT ${request.destination}: ${status} ${reason}: ${body}`);
  if (head.length > 0) socket.unshift(head);
  return socket;
}

/** Reads the answer to a CONNECT, and if that is a refusal, to the end of the connection. */
export async function readAnswer(socket: Socket): Promise<ConnectAnswer> {
  let seen = Buffer.alloc(0);
  for (;;) {
    const end = seen.indexOf('\r\n\r\n');
    if (end >= 0) return answer(socket, seen.subarray(0, end).toString('latin1'), seen.subarray(end + 4));
    seen = Buffer.concat([seen, await read(socket)]);
    if (seen.length > 65_536) throw new Error('a head of more than 64 KiB');
  }
}

async function answer(socket: Socket, text: string, rest: Buffer): Promise<ConnectAnswer> {
  const [first = '', ...fields] = text.split('\r\n');
  const match = /^HTTP\/1\.1 (\d{3}) ?(.*)$/.exec(first);
  if (!match) throw new Error(`not an HTTP/1.1 answer: ${JSON.stringify(first)}`);
  const headers: Record<string, string> = {};
  for (const field of fields) {
    const colon = field.indexOf(':');
    const name = field.slice(0, colon).toLowerCase();
    const value = field.slice(colon + 1).trim();
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value;
  }
  const status = Number(match[1]);
  const body = status === 200 ? '' : Buffer.concat([rest, await rested(socket)]).toString();
  return { status, reason: match[2] ?? '', headers, body, head: status === 200 ? rest : Buffer.alloc(0), socket };
}

/** Reads once from a paused socket. */
function read(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const done = () => {
      socket.off('data', onData).off('end', onEnd).off('close', onClose);
      socket.pause();
    };
    const onData = (chunk: Buffer) => {
      done();
      resolve(chunk);
    };
    const onEnd = () => {
      done();
      reject(new Error('ended without an answer'));
    };
    const onClose = () => {
      done();
      reject(new Error(`closed without an answer${socket.errored ? ` (${socket.errored.message})` : ''}`));
    };
    socket.on('data', onData).once('end', onEnd).once('close', onClose);
    socket.resume();
  });
}

/** Returns everything that still arrives, up to the end. */
async function rested(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  await new Promise<void>((resolve) => {
    socket.once('end', resolve).once('close', () => resolve());
    // A listener for data does not undo an explicit pause.
    socket.resume();
  });
  socket.destroy();
  return Buffer.concat(chunks);
}
