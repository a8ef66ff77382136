export { type Refused, refuseBadRequests } from './bad-requests.ts';
export {
  type AdmissionState,
  admissionCheck,
  countSessions,
  type RegistryHealth,
  registryCheck,
  sessionsCheck,
  socketsCheck,
} from './checks.ts';
export { Closing } from './closing.ts';
export { AGENT_UNREADY, type Check, SERVER_UNREADY, serveHealth, type Unready } from './health.ts';
export { BAD_TARGET, type Metrics, metricsPage, NOT_FOUND, type Page, send, urlOf } from './pages.ts';
export { type Context, type ProgramLog, type Running, runProgram } from './program.ts';
export { VERSION } from './version.ts';
