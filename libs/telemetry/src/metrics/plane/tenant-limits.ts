import { type DialLimits, type DialUse, REFUSING_LIMITS, type RefusingLimit } from '@isthmus/tunnel';
import type { Families } from '../exposition/families.ts';

/** A tenant that has dialled through this process. */
export interface TenantUse {
  readonly name: string;
  readonly limits: DialLimits;
  readonly use: DialUse;
}

/** As many tenants as have a line of their own in other families. */
const MOST_TENANTS = 1000;

/** The limits of which a tenant uses some at any moment. Of the others it uses a rate, and `tenant_dials_total` and `tenant_tunnel_bytes_total` tell. */
const HELD = ['pendingDials', 'tunnels', 'bytesQueued'] as const;

const RATES = ['dialsPerSecond', 'bytesPerSecond'] as const;

const REFUSES = Object.keys(REFUSING_LIMITS) as RefusingLimit[];

const WHOSE = `Of tenants with a file that have dialled here, ${MOST_TENANTS} at most.`;

/** What tenants use of a gateway, against their limits. */
export function tenantLimitMetrics(families: Families, using: () => Iterable<TenantUse>): void {
  const seen = () => [...using()].slice(0, MOST_TENANTS);
  families.tallied('gauge', 'tenant_limit', `Limit of a tenant in this process. ${WHOSE}`, ['tenant', 'limit'], () =>
    seen().flatMap(({ name: tenant, limits }) =>
      [...HELD, ...RATES]
        .filter((limit) => limits[limit] < Number.POSITIVE_INFINITY)
        .map((limit) => [{ tenant, limit }, limits[limit]] as const),
    ),
  );
  families.tallied('gauge', 'tenant_use', `What a tenant uses of a limit now. ${WHOSE}`, ['tenant', 'limit'], () =>
    seen().flatMap(({ name: tenant, use }) => HELD.map((limit) => [{ tenant, limit }, use[limit]] as const)),
  );
  families.tallied(
    'counter',
    'tenant_refused_dials_total',
    `Dials of a tenant that one of its limits refused, by limit. ${WHOSE}`,
    ['tenant', 'limit'],
    () =>
      seen().flatMap(({ name: tenant, use }) =>
        REFUSES.map((limit) => [{ tenant, limit }, use.refused.get(limit) ?? 0] as const),
      ),
  );
}
