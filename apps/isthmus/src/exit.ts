/** What the process ends with, so that scripts can tell. */
export const EXIT = {
  /** Asked, done, and all is well. */
  good: 0,
  /** Something is wrong with the plane: a check or a dial failed. */
  wrong: 1,
  /** The command line cannot be understood. */
  usage: 2,
  /** Could not ask: nobody answered, or not everybody whose answer counts. What was answered is printed all the same. */
  unasked: 3,
} as const;

export type ExitStatus = (typeof EXIT)[keyof typeof EXIT];

/** Ends a command with one line on standard error. Its text says what happened, to what, and what to do. */
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
