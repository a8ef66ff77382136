import { descriptors } from '@isthmus/runtime';
import type { Dial } from './dial.ts';
import { DialError } from './errors.ts';

/** Refuses dials while file descriptors are scarce. Each dial would use one of the last, for itself or for its caller's answer. */
export function refuseWhenScarce(dial: Dial, left: { readonly scarce: boolean } = descriptors): Dial {
  return (request) => (left.scarce ? Promise.reject(tooManyOpen()) : dial(request));
}

/** Retryable: the destination was not reached, and another agent or gateway may have descriptors. */
function tooManyOpen(): DialError {
  const text = 'too many open files: the process needs a higher limit, or fewer tunnels';
  return new DialError('connection_limit_reached', text, { retryable: true, retryAfter: 0 });
}
