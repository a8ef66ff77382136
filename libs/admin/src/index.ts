export { drainBackend, type KnownSession, type SessionMove } from './backend.ts';
export type { ConnectedServer, HubLink, PlanePart } from './calls/members.ts';
export { quarantineIn } from './calls/quarantine-part.ts';
export { RecentDials } from './calls/recent-dials.ts';
export { RecentRefusals } from './calls/recent-refusals.ts';
export type { RoutingPart } from './calls/routing.ts';
export type { Identity } from './calls/status.ts';
export { operations } from './operations.ts';
export { agentOperationsPorts, identityOf, operationsPorts } from './options.ts';
