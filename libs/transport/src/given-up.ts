import { DialError, type DialRequest, formatDestination } from '@isthmus/tunnel';

/** Why the dialling half of a link or of a packet stream gives up on a dial that has no answer yet. */

export function abandoned(): DialError {
  return new DialError('connection_terminated', 'the caller went away');
}

export function expired({ destination }: DialRequest): DialError {
  const text = `dial tcp ${formatDestination(destination)}: i/o timeout (no answer within the dial's deadline)`;
  return new DialError('connection_timeout', text, { expired: true });
}
