import type { DialFailure } from '../events/events.ts';

/** Upstream's words: the `reason` label of its `dial_failure_count`. Logs, spans and the admin RPC use them too, to be compared with it. */
const REASONS = {
  expired: 'backend_dial_timeout',
  abandoned: 'frontend_close',
  unavailable: 'no_agent',
  terminated: 'backend_close',
  error: 'error_response',
} as const satisfies Record<DialFailure, string>;

export function upstreamReason(failure: DialFailure): (typeof REASONS)[DialFailure] {
  return REASONS[failure];
}
