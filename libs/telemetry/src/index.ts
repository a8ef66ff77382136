export * from './metrics/agent.ts';
export type { Backend } from './metrics/backends.ts';
export type { Metrics } from './metrics/families.ts';
export type { LeaseCall, LeaseCollectionObserver, LeaseCountObserver } from './metrics/leases.ts';
export * from './metrics/server.ts';
