export { dialLimits } from './dial-limits.ts';
export type { Gateway, GatewayParts, Hub, HubParts } from './roles.ts';
export { runServer } from './run-server.ts';
export { dialRefusal } from './tenancy/dial-refusal.ts';
export { type OwnDoor, OwnDoors } from './tenancy/own-doors.ts';
export type { Tenancy } from './tenancy/tenancy.ts';
