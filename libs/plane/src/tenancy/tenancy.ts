import type { Authority, FileProblems, Tenant, Tenants } from '@isthmus/admission';
import type { TlsSettings } from '@isthmus/runtime';
import type { Check } from '@isthmus/service';
import type { FollowTls, TlsChoice } from '@isthmus/transport';

/** The tenants of a server with `--tenants-dir`, and the credentials that decide which one a peer belongs to. */
export interface Tenancy {
  /** Tenants in force, by their files. */
  readonly tenants: Pick<Tenants, 'all' | 'get' | 'size' | 'byServerName'>;
  tenant(name: string): Tenant | undefined;
  /** Files that cannot be used. The last good text of such a file may still be in force. */
  readonly problems: readonly FileProblems[];
  /** Which tenants are in force, and which files are not. */
  readonly check: Check;
  readonly authority: Authority;
  /** For `ListenOptions.chooseTls`: the certificate of the tenant that a server name (SNI) selects. Undefined: it selects none. */
  chooseTls(serverName: string): TlsChoice | undefined;
  /** For `ListenOptions.followTls`, at a tenant's own port: the certificate of the tenant's file as it is in force, or else that of `own`. */
  portTls(tenant: string, own: TlsSettings): FollowTls;
  /** Calls the listener after each change of the tenants in force, their files' contents or the program's CA bundles. @returns a function that stops this */
  onChange(listener: (change: TenantsChange) => void): () => void;
}

/** Names of tenants. */
export interface TenantsChange {
  readonly changed: readonly string[];
  readonly gone: readonly string[];
}
