import type { DialRequest } from './dial.ts';
import type { DialError, DialErrorCode } from './errors.ts';

const REFUSALS: ReadonlySet<DialErrorCode> = new Set([
  'http_request_denied',
  'destination_ip_prohibited',
  'connection_limit_reached',
]);

/**
 * Whether a policy or a limit refused a dial before any agent had it. That costs its caller nothing, so it can come in floods.
 */
export function isRefusedDial({ log }: DialRequest, { code }: DialError): boolean {
  return REFUSALS.has(code) && (log === undefined || log.attempts.length === 0);
}
