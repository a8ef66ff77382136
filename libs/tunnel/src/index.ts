export { Arrivals } from './arrivals.ts';
export type { Ask, Question } from './ask.ts';
export { Deadlines, type Due, deadlines, Silence } from './deadlines.ts';
export { TUNNEL } from './defaults.ts';
export {
  type Destination,
  DIRECT_PROHIBITIONS,
  type DialPolicy,
  formatDestination,
  type PolicyVerdict,
  PROHIBITIONS,
  type Prohibited,
  type Prohibition,
  parseDestination,
  prohibitedBy,
  reachedAddress,
} from './destination.ts';
export {
  type Attach,
  type Attached,
  type AttachRequest,
  type AttemptKind,
  type AttemptRecord,
  type Caller,
  type CallerProtocol,
  callerName,
  type Dial,
  DialAbort,
  type DialLog,
  type DialRequest,
  type DialSignal,
  dialLog,
  type Established,
  isRefusedDial,
  type NextHop,
  type ResumableTunnel,
  type TunnelOutcome,
  type TunnelSide,
} from './dial.ts';
export { type DestinationEnd, DuplexEnd, type EndUser, type TunnelEnd } from './end.ts';
export {
  asDialError,
  CUT_BY,
  type CutBy,
  DIAL_ERRORS,
  DialError,
  type DialErrorCode,
  type DialTiming,
  HungUp,
  isDialErrorCode,
  LinkReset,
  PlaneEnded,
  planeEnded,
  ReaderStalled,
  SessionLost,
} from './errors.ts';
export {
  type CertificatePlace,
  type DialFailure,
  type DialOutcome,
  type HeldTunnel,
  type Hold,
  type HoldCut,
  type Operation,
  type Operator,
  type PacketWay,
  type PlaneEventMap,
  type PlaneEvents,
  planeEvents,
  type Role,
  type SessionInfo,
  type TunnelInfo,
  type TunnelRole,
  unlessProbed,
  upstreamReason,
} from './events.ts';
export { ByteMeter } from './limits/byte-meter.ts';
export { DialLimiter, refuseWhenScarce } from './limits/dial-limiter.ts';
export { attachesInTurns, inTurns, takeTurns } from './limits/in-turns.ts';
export { type DialUse, PerSecond, TokenBucket, type TokenRate } from './limits/limits.ts';
export {
  ADMIN_SERVER_NAME,
  type AgentIdentifiers,
  type AnyPrincipal,
  checkAgentId,
  checkName,
  DIRECT,
  Distrusted,
  GATEWAY_NAME,
  HTTP_CREDENTIAL,
  HUB_SERVER_NAME,
  identifierCount,
  inWords,
  isName,
  isNetwork,
  NotAuthorised,
  notAuthorisedIn,
  type Principal,
  principalText,
  toldOf,
} from './names.ts';
export {
  type DialSpan,
  type DialSpanName,
  type DialStep,
  type DialTracer,
  enterSpan,
  type Observation,
  observedAttach,
  type StepSpanName,
} from './observe.ts';
export { type PipelineOptions, pipeline, type Stage, type WaitingDial } from './pipeline.ts';
export { AgentTunnels } from './resume/agent-tunnels.ts';
export { type AgentRoutes, attachThrough } from './resume/attach.ts';
export {
  type AttachAnswer,
  type AttachClaim,
  AttachRefused,
  type Carrier,
  encodeMark,
  type Loss,
  type Mark,
  type ResumeOffer,
  type ResumeTicket,
  readMark,
  type StreamUser,
} from './resume/carrier.ts';
export { GatewayTunnels } from './resume/gateway-tunnels.ts';
export type { ResumeOptions } from './resume/halves.ts';
export { type AgentName, agentKey, type GatewayLoss, type ProcessName } from './resume/processes.ts';
export { type Carried, Tunnel, TunnelTable } from './tunnel.ts';
