import { deferred, type Guarded } from '@isthmus/runtime';
import { DialError, type DialRequest, type Established, formatDestination } from '@isthmus/tunnel';

export interface PendingDialOptions {
  /** When to stop waiting, in milliseconds of `performance.now()`. Default: the request's deadline. */
  readonly deadline?: number;
  /** The errors of a dial whose caller has gone, and of one without an answer at its deadline. */
  readonly abandoned?: () => DialError;
  readonly expired?: (request: Asked) => DialError;
  /** Undoes what was started, if the caller has gone or the deadline has passed. */
  readonly cancel?: () => void;
  /** Called once, when the wait is over: without an error if the dial succeeded. */
  readonly settled: (error?: DialError) => void;
  /** Handles what the callbacks above throw. */
  readonly guarded: Guarded;
}

export interface PendingDial<Answer = Established> {
  /** Rejects with a DialError. */
  readonly answer: Promise<Answer>;
  succeed(answer: Answer): void;
  fail(error: DialError): void;
}

/** What is asked for: a dial, or an attach. */
type Asked = Pick<DialRequest, 'destination' | 'deadline' | 'signal'>;

/** Waits for the answer to a dial or an attach. The first of these ends the wait: the answer, a failure, the caller's abort, the deadline. */
export function pendingDial<Answer = Established>(request: Asked, options: PendingDialOptions): PendingDial<Answer> {
  const { settled, guarded, deadline = request.deadline } = options;
  const { promise: answer, resolve, reject } = deferred<Answer>();
  let waits = true;
  const settle = (pass: () => void, error?: DialError) => {
    if (!waits) return;
    waits = false;
    clearTimeout(timer);
    request.signal.removeEventListener('abort', abandon);
    pass();
    settled(error);
  };
  const fail = (error: DialError) => settle(() => reject(error), error);
  const giveUp = (why: (request: Asked) => DialError) => {
    if (!waits) return;
    options.cancel?.();
    fail(why(request));
  };
  const abandon = guarded(() => giveUp(options.abandoned ?? abandoned));
  const expire = guarded(() => giveUp(options.expired ?? expired));
  const timer = setTimeout(expire, Math.max(0, deadline - performance.now()));
  request.signal.addEventListener('abort', abandon, { once: true });
  return { answer, fail, succeed: (given) => settle(() => resolve(given)) };
}

export function abandoned(): DialError {
  return new DialError('connection_terminated', 'the caller went away');
}

function expired({ destination }: Asked): DialError {
  const text = `dial tcp ${formatDestination(destination)}: i/o timeout (no answer within the dial's deadline)`;
  return new DialError('connection_timeout', text, { expired: true });
}
