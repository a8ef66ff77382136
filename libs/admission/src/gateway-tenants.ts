import type { Certificate } from '@isthmus/runtime';
import { readSpiffeId } from './spiffe.ts';

/** SPIFFE IDs that speak of tenants, also those that cannot be read: they grant nothing, and must not count as none. */
const OF_TENANTS = /^spiffe:\/\/[^/]*\/+tenant(\/|$)/i;

/**
 * The tenants for which a gateway may dial: those of its SPIFFE IDs (`spiffe://TRUST-DOMAIN/tenant/T/gateway/NAME`, one or more), if it
 * has any that speak of tenants. Undefined: it has none, and may dial for all. The listener that verified its certificate has checked its role.
 */
export function gatewayTenants({ names }: Certificate): ReadonlySet<string> | undefined {
  const uris = (names?.uris ?? []).filter((uri) => OF_TENANTS.test(uri));
  if (uris.length === 0) return undefined;
  const ids = uris.map(readSpiffeId);
  return new Set(ids.flatMap((id) => (id?.role === 'gateway' ? id.tenant : [])));
}
