import { DEFAULT_LIMITS } from '@isthmus/admission/basics';
import type { LimitedTenant } from '@isthmus/telemetry';
import type { DialLimits } from '@isthmus/tunnel';
import type { Gateway } from './roles.ts';
import type { Tenancy } from './tenancy/tenancy.ts';

/** A tenant's limits as its file has them now. A tenant whose file was just removed is refused elsewhere. */
export function dialLimits({ tenant }: Pick<Tenancy, 'tenant'>): (name: string) => DialLimits {
  return (name) => tenant(name)?.limits ?? DEFAULT_LIMITS;
}

/** The tenants that have dialled through a gateway, for its metrics. */
export function* tenantsUsing(
  { tenants }: Pick<Tenancy, 'tenants'>,
  gateway: Pick<Gateway, 'use'>,
): Iterable<LimitedTenant> {
  for (const { name, limits } of tenants.all) {
    const use = gateway.use(name);
    if (use) yield { name, limits, use };
  }
}
