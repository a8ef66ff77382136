export type { Gateway, GatewayParts, Hub, HubParts } from './roles.ts';
export { runServer } from './run-server.ts';
