import type { Admission } from '@isthmus/admission';
import type { TlsSettings } from '@isthmus/runtime';
import type { FollowTls, TlsChoice } from '@isthmus/transport';
import type { TenancyFlags, TenancyParts } from './start-tenancy.ts';
import type { tenantViews } from './views.ts';

/** The tenants of a server with `--tenants-dir`: who peers are and what they may, and the certificates that tenants show. */
export interface Tenancy extends Admission {
  readonly views: ReturnType<typeof tenantViews>;
  /** For `ListenOptions.chooseTls`: the certificate of the tenant that a server name (SNI) selects. Undefined: it selects none. */
  chooseTls(serverName: string): TlsChoice | undefined;
  /** For `ListenOptions.followTls`, at a tenant's own port: the certificate of the tenant's file as it is in force, or else that of `own`. */
  portTls(tenant: string, own: TlsSettings): FollowTls;
}

/**
 * Follows the tenants of --tenants-dir. Without the flag there is no tenancy, and the code that reads tenants' files and tokens is not
 * loaded: a third of a server's code.
 */
export async function tenancyOf(flags: TenancyFlags, parts: TenancyParts): Promise<Tenancy | undefined> {
  if (flags['tenants-dir'] === '') return undefined;
  const { startTenancy } = await import('./start-tenancy.ts');
  return startTenancy(flags, parts);
}
