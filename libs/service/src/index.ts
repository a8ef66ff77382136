export type { KickPart } from './admin/kick.ts';
export type { LogLevel, LogPart } from './admin/logs.ts';
export type { ConnectedServer, HubLink, PlanePart, ServersPart } from './admin/members.ts';
export { type QuarantinePart, quarantineIn } from './admin/quarantine-part.ts';
export { RecentDials, type SeenDial } from './admin/recent-dials.ts';
export { RecentRefusals } from './admin/recent-refusals.ts';
export type { RoutingPart } from './admin/routing.ts';
export type { Identity } from './admin/status.ts';
export * from './admin.ts';
export * from './admin-backend.ts';
export { type AdminHandlerOptions, adminHandler } from './admin-handler.ts';
export * from './admin-options.ts';
export * from './checks.ts';
export * from './closing.ts';
export {
  AGENT_UNREADY,
  type Check,
  type HealthOptions,
  type HealthServer,
  SERVER_UNREADY,
  serveHealth,
  type Unready,
} from './health.ts';
export { type Host, processHost } from './host.ts';
export * from './operations.ts';
export type { MetricsPage } from './pages.ts';
export { type Context, type ProgramLog, type ProgramOptions, type Running, runProgram } from './program.ts';
export { VERSION } from './version.ts';
