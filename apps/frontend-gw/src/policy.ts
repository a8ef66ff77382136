import { dialRefusal, type Tenancy } from '@isthmus/plane';
import { DialError, type DialRequest, type explain, type Stage } from '@isthmus/tunnel';

/** What a tenant's file says about a dial, for an operator who asks. */
export function verdicts(tenancy: Pick<Tenancy, 'tenant'>): NonNullable<Parameters<typeof explain>[0]['policy']> {
  return (name, destination, caller) => tenancy.tenant(name)?.policy.verdict(destination, caller);
}

/** Refuses dials that the tenant's file forbids, by name or literal address. An agent judges what a name was resolved to. */
export function permitted(tenancy: Pick<Tenancy, 'tenant'>): Stage {
  const permit: Stage = (next) => (request) => {
    const refusal = refusalOf(request, tenancy);
    return refusal ? Promise.reject(refusal) : next(request);
  };
  return permit;
}

function refusalOf(request: DialRequest, tenancy: Pick<Tenancy, 'tenant'>): DialError | undefined {
  const tenant = tenancy.tenant(request.tenant);
  if (tenant) return dialRefusal(tenant, request);
  return new DialError(
    'http_request_denied',
    `there is no tenant ${request.tenant}: no file in --tenants-dir names it`,
  );
}
