export { Admission } from './admission.ts';
export { Backoff } from './backoff.ts';
export { issuerOf, nameOf, subjectOf } from './certificate-name.ts';
export { HTTP_CREDENTIAL } from './credential.ts';
export { deferred } from './deferred.ts';
export { descriptors, type Reopening, refuseWhenScarce } from './descriptors.ts';
export { type Destination, formatDestination, parseDestination } from './destination.ts';
export type { Caller, Dial, DialRequest, DialTiming, Established, TunnelEnd } from './dial.ts';
export { DialAbort, type DialSignal } from './dial-abort.ts';
export { type AttemptKind, type AttemptRecord, type DialLog, dialLog } from './dial-log.ts';
export { Directory, type SessionWatcher } from './directory.ts';
export {
  asDialError,
  DIAL_ERRORS,
  DialError,
  type DialErrorCode,
  isDialErrorCode,
  PlaneEnded,
  planeEnded,
  ReaderStalled,
  SessionLost,
} from './errors.ts';
export {
  type AuditSink,
  type CertificatePlace,
  type ClosedBy,
  type DialOutcome,
  type GrpcMethod,
  type PlaneEventMap,
  type PlaneEvents,
  planeEvents,
  type Role,
  type Segment,
  type SessionInfo,
  type TunnelInfo,
  type TunnelOutcome,
} from './events.ts';
export { type Candidate, type ExplainedStep, type Explanation, explain } from './explain.ts';
export { type Guarded, guarding } from './guarded.ts';
export { inWords } from './in-words.ts';
export { checkName, isName, isPrintable, printable } from './names.ts';
export { type Observation, observed } from './observe.ts';
export { unlessProbed } from './probes.ts';
export { PROHIBITIONS, type Prohibited, type Prohibition, prohibitedBy } from './prohibited.ts';
export { MAX_QUARANTINED, Quarantines } from './quarantine.ts';
export { RandomSet } from './random-set.ts';
export type {
  AgentIdentifiers,
  AgentName,
  Change,
  HubRecord,
  Member,
  Quarantine,
  SessionRecord,
  Snapshot,
} from './records.ts';
export { remoteOf } from './remote.ts';
export { Ring } from './ring.ts';
export { GATEWAY_NAME, HUB_SERVER_NAME } from './roles.ts';
export { routed } from './route.ts';
export { guardServer, type StrangerLimits, Strangers, sourceOf } from './strangers.ts';
export { STRATEGIES, type Strategy } from './strategies.ts';
export { Suspects } from './suspects.ts';
export {
  type DialSpan,
  type DialSpanName,
  type DialStep,
  type DialTracer,
  noTracer,
  type StepSpanName,
} from './trace.ts';
export { Tunnel } from './tunnel.ts';
export { TunnelTable } from './tunnel-table.ts';
export { youngGarbage } from './young-garbage.ts';
