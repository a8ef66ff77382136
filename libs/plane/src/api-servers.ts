import type { Tenant } from '@isthmus/admission';
import { apiServerLifted, comparableHost } from '@isthmus/admission/api-servers';
import { machineAddresses } from '@isthmus/runtime';
import { type ApiServer, ApiServers, DEFAULT_TENANT } from '@isthmus/transport';
import { type Observation, prohibitedBy } from '@isthmus/tunnel';
import type { Tenancy } from './roles.ts';

export interface ApiServerSettings {
  /** Without tenants: its names, and where it is. */
  readonly apiServer?: (Omit<ApiServer, 'tenant'> & { readonly names: readonly string[] }) | undefined;
  /** Ports on which this program listens by its flags. */
  readonly ownPorts?: readonly number[];
}

interface ApiServerParts extends ApiServerSettings {
  /** Empty in a gateway. */
  readonly hubId: string;
  readonly tenancy?: Tenancy | undefined;
  readonly observation: Observation;
}

/** The API servers that clients reach through a process: those of tenants' files, or that of flags. */
export function apiServersOf({ apiServer, ownPorts = [], hubId, tenancy, observation }: ApiServerParts): ApiServers {
  const ports = () => [...ownPorts, ...(tenancy ? tenantPorts(tenancy) : [])];
  const common = {
    hubId,
    events: observation.events,
    prohibited: (address: string, port: number, ofObject: boolean) => {
      const lifted = apiServerLifted(ofObject);
      const own = ofObject ? [port] : ports();
      return prohibitedBy({ ownPorts: own, ownAddresses: machineAddresses, lifted })(address, port);
    },
  };
  if (tenancy) {
    const { tenants } = tenancy;
    return new ApiServers({
      ...common,
      any: () => tenants.nameApiServers,
      ofTenant: (name) => ofTenant(tenants.get(name)),
      find: (serverName) => ofTenant(tenants.byApiServerName(serverName)),
      limits: tenancy.limits,
    });
  }
  const names = new Set(apiServer?.names.map(comparableHost));
  const only = apiServer && { ...apiServer, tenant: DEFAULT_TENANT };
  return new ApiServers({
    ...common,
    any: () => names.size > 0,
    ofTenant: (tenant) => (tenant === DEFAULT_TENANT ? only : undefined),
    find: (serverName) => (names.has(comparableHost(serverName)) ? only : undefined),
  });
}

/** Resolves the addresses of all API servers, and again those of changed files; tells of those that cannot be one's. @returns a function that stops it */
export function followApiServers(servers: ApiServers, { apiServer, tenancy }: ApiServerParts): () => void {
  if (!tenancy) {
    servers.follow(apiServer?.addresses ?? []);
    return () => {};
  }
  const addressesOf = (files: readonly Tenant['file'][]) =>
    files.flatMap(({ apiServer }) => apiServer?.addresses ?? []);
  const look = () => {
    const files = [...tenancy.tenants.all].map(({ file }) => file);
    const made = (byObject: boolean) => addressesOf(files.filter(({ source }) => (source !== undefined) === byObject));
    servers.follow(made(false), made(true));
  };
  look();
  tenancy.foundOfApiServers(({ file }) =>
    (file.apiServer?.addresses ?? []).flatMap((text, index) => {
      const message = servers.addresses.fault(text, file.source !== undefined);
      return message === undefined ? [] : [{ at: `apiServer.addresses[${index}]`, message }];
    }),
  );
  return tenancy.changed(look);
}

function ofTenant(tenant: Tenant | undefined): ApiServer | undefined {
  if (!tenant?.file.apiServer) return undefined;
  const { addresses, proxyProtocol = false } = tenant.file.apiServer;
  return { tenant: tenant.name, addresses, proxyProtocol, ofObject: tenant.file.source !== undefined };
}

/** The ports on which the program listens by tenants' files. */
export function tenantPorts({ tenants }: Pick<Tenancy, 'tenants'>): number[] {
  const files = [...tenants.all].map(({ file }) => file);
  return files.flatMap(({ agents = [], callers = [] }) => [...agents, ...callers].flatMap(({ port }) => port ?? []));
}
