export { auditDials } from './audit/dials.ts';
export type { AuditRecord } from './audit/record.ts';
export { auditTrail } from './audit/trail.ts';
export { type Instruments, instrument } from './instrument.ts';
export { createLogger, type ProgramLogger } from './logging/logger.ts';
export { agentMetrics } from './metrics/agent.ts';
export type { Metrics } from './metrics/exposition/families.ts';
export type { PlaneSight } from './metrics/plane/plane.ts';
export { type ServerMetrics, serverMetrics } from './metrics/server.ts';
