export { type RoutingOptions, routed } from './attempts.ts';
export { Directory, type SessionWatcher } from './directory.ts';
export { type Following, follow, Roster } from './follow.ts';
export { memoryRegistry } from './memory.ts';
export { keyText, type Session, type Strategy, serves } from './placement.ts';
export type { Change, HubRecord, HubRegistration, Member, Quarantine, Registry, SessionRecord } from './registry.ts';
export {
  type LeftOut,
  type Lookup,
  lookups,
  type Rank,
  type Routed,
  type RouteOptions,
  type RouteTo,
  route,
  Suspects,
} from './route.ts';
