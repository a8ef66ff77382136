export * from './logging/log-events.ts';
export * from './logging/logger.ts';
export { redactUrl } from './logging/redact.ts';
export * from './metrics/agent.ts';
export type { Backend } from './metrics/backends.ts';
export type { Metrics } from './metrics/families.ts';
export type { LeaseCall, LeaseCollectionObserver, LeaseCountObserver } from './metrics/leases.ts';
export * from './metrics/server.ts';
export * from './tracing/opentelemetry.ts';
