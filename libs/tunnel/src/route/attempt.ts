import type { Established } from '../dial/dial.ts';
import type { DialAbort } from '../dial/dial-abort.ts';
import type { AttemptRecord } from '../dial/dial-log.ts';
import type { DialError } from '../dial/errors.ts';
import type { SignOfLife } from '../dial/sign-of-life.ts';
import type { DialSpan } from '../events/trace.ts';
import type { SessionRecord } from '../replica/records.ts';
import type { Route } from './placement.ts';

/** One try through one session. */
export interface Attempt {
  readonly record: SessionRecord;
  readonly entry: AttemptRecord;
  readonly span: DialSpan<AttemptRecord>;
  readonly abort: DialAbort;
  life: SignOfLife;
}

/** Writes how an attempt ended, once, to the dial's log and its span. */
export function recordOutcome({ entry, span }: Attempt, outcome: AttemptRecord['outcome'], error?: DialError): void {
  entry.outcome = outcome;
  entry.ms = performance.now() - entry.start;
  if (error) entry.error = error;
  span.end(entry);
}

/** Counts a dial on a route. @returns a function that undoes it. It lives as long as the tunnel, so its closure holds only the route */
export function countOn(route: Route): () => void {
  route.open++;
  return () => {
    route.open--;
  };
}

/** Calls back once the tunnel has left the session that it began on. */
export function whenLeft({ end }: Established, left: () => void): void {
  if (end.whenLeft) end.whenLeft(left);
  else if (end.stream.closed) left();
  else end.stream.on('close', left);
}
