export { type ApiServerSettings, apiServersOf, followApiServers, tenantPorts } from './api-servers.ts';
export type { Gateway, GatewayParts, Hub, HubParts, Tenancy } from './roles.ts';
export { runServer } from './run-server.ts';
export { type TenantPort, TenantPorts } from './tenancy/tenant-ports.ts';
