export { Abandonment, type DialSignal } from './abandonment.ts';
export { Admission } from './admission.ts';
export { issuerOf, nameOf, subjectOf } from './certificate-name.ts';
export { HTTP_CREDENTIAL } from './credential.ts';
export { type Destination, formatDestination, parseDestination } from './destination.ts';
export type { Caller, Dial, DialRequest, DialTiming, Established, TunnelEnd } from './dial.ts';
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
export { inWords } from './in-words.ts';
export { checkName, isName, isPrintable, printable } from './names.ts';
export { type Observation, observed } from './observe.ts';
export { unlessProbed } from './probes.ts';
export { PROHIBITIONS, type Prohibited, type Prohibition, prohibitedBy } from './prohibited.ts';
export { MAX_QUARANTINED, Quarantines } from './quarantine.ts';
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
export { refuseWhenScarce } from './refuse-when-scarce.ts';
export { GATEWAY_NAME, HUB_SERVER_NAME } from './roles.ts';
export { routed } from './route.ts';
export { type AttemptKind, type AttemptRecord, type DialStory, dialStory } from './story.ts';
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
