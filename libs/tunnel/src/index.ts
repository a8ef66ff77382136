export { Splice } from './carry/splice.ts';
export { type Carried, Tunnel } from './carry/tunnel.ts';
export { TunnelTable } from './carry/tunnel-table.ts';
export type { Attach, Attached, AttachRequest, Link } from './dial/attach.ts';
export { type Destination, formatDestination, parseDestination } from './dial/destination.ts';
export {
  type Caller,
  type CallerProtocol,
  callerName,
  type Dial,
  type DialRequest,
  type DialTiming,
  type Established,
  type TunnelEnd,
} from './dial/dial.ts';
export { DialAbort, type DialSignal } from './dial/dial-abort.ts';
export { DialLimiter } from './dial/dial-limiter.ts';
export { type AttemptKind, type AttemptRecord, type DialLog, dialLog } from './dial/dial-log.ts';
export {
  asDialError,
  CUT_BY,
  DIAL_ERRORS,
  DialError,
  type DialErrorCode,
  HungUp,
  isDialErrorCode,
  LinkReset,
  PlaneEnded,
  planeEnded,
  REFUSING_LIMITS,
  ReaderStalled,
  type RefusingLimit,
  SessionLost,
} from './dial/errors.ts';
export { inTurns } from './dial/in-turns.ts';
export { pipeline, type Stage } from './dial/pipeline.ts';
export type { DialPolicy, PolicyVerdict } from './dial/policy.ts';
export { PROHIBITIONS, type Prohibited, type Prohibition, prohibitedBy, reachedAddress } from './dial/prohibited.ts';
export { refuseWhenScarce } from './dial/refuse-when-scarce.ts';
export { isRefusedDial } from './dial/refused-dial.ts';
export { SignOfLife } from './dial/sign-of-life.ts';
export {
  type AuditSink,
  type CertificatePlace,
  type ClosedBy,
  type DialFailure,
  type DialOutcome,
  type GiveUpReason,
  type Operation,
  type Operator,
  type PacketWay,
  type PlaneEventMap,
  type PlaneEvents,
  planeEvents,
  type ResumableTunnel,
  type Role,
  type SessionInfo,
  type TunnelInfo,
  type TunnelOutcome,
  unlessProbed,
  upstreamReason,
} from './events.ts';
export type { DialLimits, DialUse } from './limits/limits.ts';
export { PerSecond } from './limits/per-second.ts';
export { TokenBucket } from './limits/token-bucket.ts';
export {
  type AnyPrincipal,
  checkName,
  GATEWAY_NAME,
  HTTP_CREDENTIAL,
  HUB_SERVER_NAME,
  inWords,
  isName,
  isPrintable,
  NotAuthorised,
  notAuthorisedIn,
  type Principal,
  principalText,
  printable,
} from './names.ts';
export {
  type DialSpan,
  type DialSpanName,
  type DialStep,
  type DialTracer,
  enterSpan,
  noTracer,
  type Observation,
  observed,
  observedAttach,
  type StepSpanName,
} from './observe.ts';
export { AgentTunnels } from './resume/agent-tunnels.ts';
export {
  type AttachAnswer,
  type AttachClaim,
  AttachRefused,
  type Carrier,
  type CarrierUser,
  type Mark,
  type ResumeGrant,
  type ResumeOffer,
} from './resume/carrier.ts';
export { GatewayTunnels } from './resume/gateway-tunnels.ts';
export type { GatewayLoss } from './resume/hung-up-gateways.ts';
export type { ResumeOptions } from './resume/options.ts';
export { type AgentIdentifiers, type AgentName, agentKey, identifierCount, isNetwork } from './sessions.ts';
