/**
 * Why a call failed. `refused`: nobody listens there. `draining`: the gateway asks the caller to leave, with its retry hint.
 * In these two cases a caller tries another gateway. `failed` is everything else.
 */
export type CallFailure = 'refused' | 'draining' | 'failed';

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
