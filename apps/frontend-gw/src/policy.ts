import { dialRefusal, type Tenancy } from '@isthmus/plane';
import { DialError, type DialRequest, type Stage } from '@isthmus/tunnel';

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
