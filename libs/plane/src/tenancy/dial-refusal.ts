import type { Tenant } from '@isthmus/admission';
import { callerName, DialError, type DialRequest, formatDestination, NotAuthorised } from '@isthmus/tunnel';

/**
 * Returns why a tenant's file forbids a dial, or undefined if it does not.
 * @param addresses see `Policy`
 */
export function dialRefusal(
  { path, policy }: Tenant,
  request: DialRequest,
  addresses?: readonly string[],
): DialError | undefined {
  const found = policy.refusal(request.destination, callerName(request), addresses);
  if (found === undefined) return undefined;
  const rule = `${path}: dial.${found}`;
  const destination = formatDestination(request.destination);
  const text = found === 'allow' ? `no rule of ${rule} allows ${destination}` : `${rule} forbids ${destination}`;
  const cause = new NotAuthorised(text, { rule, principal: request.caller?.principal, destination });
  return new DialError('destination_ip_prohibited', text, { cause });
}
