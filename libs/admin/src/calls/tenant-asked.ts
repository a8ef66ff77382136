import type { AdminBackend } from '../backend.ts';
import { invalid } from './refusals.ts';

/** Tenants that a refusal names: enough to recall a name, and one line still. */
const MOST_NAMES = 20;

/**
 * Returns the tenant that a request is about. Without `--tenants-dir`, that is by default the tenant of the gateway's own callers. With
 * it, a request has to name its tenant, because agents of several tenants may have one id, and destinations of theirs one address.
 * @throws ServerError
 */
export function tenantAsked({ routing, tenants }: Pick<AdminBackend, 'routing' | 'tenants'>, named = ''): string {
  if (!tenants) return named || routing?.tenant || 'default';
  if (named !== '' && tenants.has(named)) return named;
  const names = [...tenants.list()].map(({ name }) => name).sort();
  const more = names.length > MOST_NAMES ? ` and ${names.length - MOST_NAMES} more` : '';
  const known =
    names.length === 0 ? 'No tenant is in force' : `Tenants: ${names.slice(0, MOST_NAMES).join(', ')}${more}`;
  throw invalid(`${named === '' ? 'name a tenant with --tenant' : `there is no tenant ${named}`}. ${known}`);
}
