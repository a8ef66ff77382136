export type { Gateway, GatewayParts, Hub, HubParts } from './roles.ts';
export { runServer } from './run-server.ts';
export type { Tenancy } from './tenancy/tenancy.ts';
export { type TenantPort, TenantPorts } from './tenancy/tenant-ports.ts';
