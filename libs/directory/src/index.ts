export { type RoutingOptions, routed } from './attempts.ts';
export { Directory, type SessionWatcher } from './directory.ts';
export { type Following, follow } from './follow.ts';
export { memoryRegistry } from './memory.ts';
export type { Session } from './placement.ts';
export { planeRoll } from './plane-roll.ts';
export type { Change, HubRecord, Member, Quarantine, SessionRecord } from './records.ts';
export type { HubRegistration, Registry } from './registry.ts';
export { Roster } from './roster.ts';
export {
  type LeftOut,
  type Lookup,
  lookups,
  type Rank,
  type Routed,
  type RouteOptions,
  type RouteTo,
  route,
} from './route.ts';
export { keyText, STRATEGIES, type Strategy, serves } from './strategies.ts';
export { Suspects } from './suspects.ts';
