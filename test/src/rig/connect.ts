import { readFileSync } from 'node:fs';
import { connect as connectTcp, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls, createSecureContext, type SecureContext } from 'node:tls';
import type { Ways } from '../harness/index.ts';

const MOST_HEAD = 16_384;
const contexts = new Map<string, SecureContext>();

/**
 * Why a call failed. `refused`: nobody listens there. `draining`: the gateway asks the caller to leave, with its retry hint.
 * In these two cases a caller tries another gateway. `failed` is everything else.
 */
type CallFailure = 'refused' | 'draining' | 'failed';

export class CallError extends Error {
  readonly kind: CallFailure;

  constructor(kind: CallFailure, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** Errors of connect(2). A unix socket gives the last one if the listener closes before it has accepted the connection. */
const NOBODY = new Set(['ECONNREFUSED', 'ENOENT', 'ECONNRESET']);

/** Returns what a socket's error means to a caller that has no answer yet. */
export function brokenOff(error: NodeJS.ErrnoException | undefined): CallError {
  // On Node 20, a stream that waits for its connection first reports that it is cancelled, with the reason only as the cause.
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const { syscall, code = '' } = cause as NodeJS.ErrnoException;
    if (syscall === 'connect' && NOBODY.has(code)) return new CallError('refused', cause.message);
  }
  return new CallError('failed', `broke before the answer${error ? `: ${error.message}` : ''}`);
}

/** Connects as an API server does: a new connection for each dial, with a full handshake if it is TLS. */
function connectTo(door: Ways, protocol: 'connect' | 'mtls'): { socket: Socket; ready: string } {
  if (protocol === 'connect') {
    return { socket: connectTcp({ path: door.connect.uds, allowHalfOpen: true }), ready: 'connect' };
  }
  const { port, serverName: servername = 'localhost' } = door.mtls;
  const tcp = connectTcp({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  const socket = connectTls({ socket: tcp, servername, secureContext: contextOf(door) });
  tcp.once('error', (error) => socket.destroy(error));
  return { socket, ready: 'secureConnect' };
}

function contextOf({ mtls: { ca, identity } }: Ways): SecureContext {
  const { cert, key } = identity;
  let context = contexts.get(cert);
  if (!context) {
    context = createSecureContext({ ca: readFileSync(ca), cert: readFileSync(cert), key: readFileSync(key) });
    contexts.set(cert, context);
  }
  return context;
}

/** HTTP CONNECT: resolves with the tunnel once the 200 is there, rejects with a CallError. */
export function connectCall(door: Ways, protocol: 'connect' | 'mtls', destination: string): Call {
  const { socket, ready } = connectTo(door, protocol);
  const answer = new Promise<Socket>((resolve, reject) => {
    let head = '';
    const over = () => reject(brokenOff(socket.errored as NodeJS.ErrnoException | undefined));
    socket.on('error', () => {});
    socket.once('close', over).once('end', over);
    socket.once(ready, () => socket.write(`CONNECT ${destination} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`));
    const read = (chunk: Buffer) => {
      head += chunk.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end < 0 && head.length < MOST_HEAD) return;
      socket.off('data', read).off('close', over).off('end', over).pause();
      const refusal = refusalOf(head.slice(0, end));
      if (refusal) return reject(refusal);
      const rest = Buffer.from(head.slice(end + 4), 'latin1');
      if (rest.length > 0) socket.unshift(rest);
      resolve(socket);
    };
    socket.on('data', read);
  });
  return { answer, end: () => socket.destroy() };
}

/** A pending dial: its answer, and how to give it up. */
export interface Call {
  readonly answer: Promise<Duplex>;
  end(): void;
}

function refusalOf(head: string): CallError | undefined {
  const [status = ''] = head.split('\r\n', 1);
  if (status.startsWith('HTTP/1.1 200 ')) return undefined;
  // A gateway that waits for an agent or for room answers 1: another gateway would not help then.
  const leaves = status.startsWith('HTTP/1.1 503 ') && /^retry-after: 0$/im.test(head);
  return new CallError(leaves ? 'draining' : 'failed', status.slice('HTTP/1.1 '.length));
}
