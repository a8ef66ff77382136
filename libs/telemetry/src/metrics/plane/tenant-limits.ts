import { type DialLimits, type DialUse, REFUSING_LIMITS, type RefusingLimit } from '@isthmus/tunnel';
import type { Families } from '../exposition/families.ts';

/** A tenant that has dialled through this process, its limits, and what it uses of them. */
export interface LimitedTenant {
  readonly name: string;
  readonly limits: DialLimits;
  readonly use: DialUse;
}

/** How many tenants have lines here: as many as in other families. */
const MOST_TENANTS = 1000;

/** Limits of what a tenant holds at one moment. */
const HELD_LIMITS = ['pendingDials', 'tunnels', 'bytesQueued'] as const;

/** Limits of rates. How they are used follows from `tenant_dials_total` and `tenant_tunnel_bytes_total`. */
const RATE_LIMITS = ['dialsPerSecond', 'bytesPerSecond'] as const;

const REFUSING = Object.keys(REFUSING_LIMITS) as RefusingLimit[];

const WHOSE = `Of tenants with a file that have dialled here, ${MOST_TENANTS} at most.`;

/** What tenants use of a gateway, against their limits. */
export function tenantLimitMetrics(families: Families, using: () => Iterable<LimitedTenant>): void {
  const seen = () => [...using()].slice(0, MOST_TENANTS);
  families.tallied('gauge', 'tenant_limit', `Limit of a tenant in this process. ${WHOSE}`, ['tenant', 'limit'], () =>
    seen().flatMap(({ name: tenant, limits }) =>
      [...HELD_LIMITS, ...RATE_LIMITS]
        .filter((limit) => limits[limit] < Number.POSITIVE_INFINITY)
        .map((limit) => [{ tenant, limit }, limits[limit]] as const),
    ),
  );
  families.tallied('gauge', 'tenant_use', `What a tenant uses of a limit now. ${WHOSE}`, ['tenant', 'limit'], () =>
    seen().flatMap(({ name: tenant, use }) => HELD_LIMITS.map((limit) => [{ tenant, limit }, use[limit]] as const)),
  );
  families.tallied(
    'counter',
    'tenant_refused_dials_total',
    `Dials of a tenant that one of its limits refused, by limit. ${WHOSE}`,
    ['tenant', 'limit'],
    () =>
      seen().flatMap(({ name: tenant, use }) =>
        REFUSING.map((limit) => [{ tenant, limit }, use.refused.get(limit) ?? 0] as const),
      ),
  );
}
