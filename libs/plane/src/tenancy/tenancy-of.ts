import type { TenancyFlags, TenancyParts } from './start-tenancy.ts';
import type { Tenancy } from './tenancy.ts';

/**
 * Follows the tenants of --tenants-dir. Without the flag there is no tenancy, and the code that reads tenants' files and tokens is not
 * loaded: a third of a server's code.
 */
export async function tenancyOf(flags: TenancyFlags, parts: TenancyParts): Promise<Tenancy | undefined> {
  if (flags['tenants-dir'] === '') return undefined;
  const { startTenancy } = await import('./start-tenancy.ts');
  return startTenancy(flags, parts);
}
