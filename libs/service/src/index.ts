export { type Refused, refuseBadRequests, remoteOf } from './bad-requests.ts';
export * from './checks.ts';
export * from './closing.ts';
export { guardListener } from './guard-listener.ts';
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
export { BAD_TARGET, type Metrics, type MetricsPage, metricsPage, NOT_FOUND, type Page, send, urlOf } from './pages.ts';
export { type Context, type ProgramLog, type ProgramOptions, type Running, runProgram } from './program.ts';
export { VERSION } from './version.ts';
