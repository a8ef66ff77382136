/** Exit statuses of the process, for scripts. */
export const EXIT = {
  /** Asked, done, and everything is fine. */
  good: 0,
  /** Something is wrong with the plane: a check or a dial failed. */
  wrong: 1,
  /** The command line is invalid. */
  usage: 2,
  /** Could not ask: nobody answered, or a member whose answer matters did not. The answers that came are still printed. */
  unasked: 3,
  /** Everything works, and something needs attention before it does not. */
  attention: 4,
} as const;

export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

/** Ends a command with one line on standard error. The text says what happened, to what, and what to do. */
export class Failure extends Error {
  override readonly name = 'Failure';
  readonly status: ExitStatus;

  constructor(status: ExitStatus, message: string, options?: ErrorOptions) {
    super(message, options);
    this.status = status;
  }
}

export function usage(message: string): Failure {
  return new Failure(EXIT.usage, message);
}

export { inWords as messageOf } from '@isthmus/tunnel';
