export type { AuditRecord, OtherRecord, TrailRecord } from './audit/records.ts';
export { audit } from './audit/trail.ts';
export { exportMetrics, type Instruments, instrument } from './instrument.ts';
export { createLogger, type ProgramLogger } from './logging/logger.ts';
export { agentMetrics } from './metrics/agent.ts';
export type { Metrics } from './metrics/families.ts';
export type { PlaneState } from './metrics/plane.ts';
export { holdMetrics, type ServerMetrics, serverMetrics } from './metrics/server.ts';
export type { LimitedTenant, TenantsState } from './metrics/tenants.ts';
