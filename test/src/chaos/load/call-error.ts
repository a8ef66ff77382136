/**
 * Why a call came to nothing. `refused`: nobody listens there. `draining`: the gateway asks to be left, with its retry hint.
 * Those two a caller takes to another gateway; `failed` is everything else.
 */
export type CallFailure = 'refused' | 'draining' | 'failed';

export class CallError extends Error {
  readonly kind: CallFailure;

  constructor(kind: CallFailure, message: string) {
    super(message);
    this.kind = kind;
  }
}

/** Of connect(2). A unix socket's gives the last when the listener closes before it has taken the connection. */
const NOBODY = new Set(['ECONNREFUSED', 'ENOENT', 'ECONNRESET']);

/** What an error of a socket means to a caller that has no answer yet. */
export function brokenOff(error: NodeJS.ErrnoException | undefined): CallError {
  // Node 20 tells a stream that waits for its connection first that it is cancelled, and why only as the cause.
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const { syscall, code = '' } = cause as NodeJS.ErrnoException;
    if (syscall === 'connect' && NOBODY.has(code)) return new CallError('refused', cause.message);
  }
  return new CallError('failed', `broke before the answer${error ? `: ${error.message}` : ''}`);
}
