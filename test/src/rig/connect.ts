import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openSocket, readAnswer } from '../harness/connect-caller.ts';
import type { Ways } from '../harness/index.ts';

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

/** HTTP CONNECT, on a connection of its own: resolves with the tunnel once the 200 is there, rejects with a CallError. */
export function connectCall(door: Ways, protocol: 'connect' | 'mtls', destination: string): Call {
  const socket = openSocket(door[protocol]).on('error', () => {});
  socket.write(`CONNECT ${destination} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`);
  return { answer: answerOn(socket), end: () => socket.destroy() };
}

async function answerOn(socket: Socket): Promise<Duplex> {
  const { status, reason, headers, head } = await readAnswer(socket).catch(() => {
    throw brokenOff(socket.errored as NodeJS.ErrnoException | undefined);
  });
  // A gateway that waits for an agent or for room answers 1: another gateway would not help then.
  const leaves = status === 503 && headers['retry-after'] === '0';
  if (status !== 200) throw new CallError(leaves ? 'draining' : 'failed', `${status} ${reason}`);
  if (head.length > 0) socket.unshift(head);
  return socket;
}

/** A pending dial: its answer, and how to give it up. */
export interface Call {
  readonly answer: Promise<Duplex>;
  end(): void;
}
