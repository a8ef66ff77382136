import type { EventEmitter } from 'node:events';
import type { PacketType } from '@isthmus/proto';
import type { DialRequest, DialTiming } from '../dial/dial.ts';
import type { DialError } from '../dial/errors.ts';
import type { AgentIdentifiers } from '../replica/records.ts';
import { IsolatingEmitter } from './isolating-emitter.ts';

/** The part of the plane that emits an event. A process may hold several (the all-in-one server is gateway and hub). */
export type Role = 'gateway' | 'hub' | 'agent';

/** ANP's names for the four directions of its packet streams (the `segment` label of its metrics). */
export type Segment = 'from_client' | 'to_client' | 'from_agent' | 'to_agent';

/** ANP's two packet streams (the `service_method` label of its metrics). */
export type GrpcMethod = 'Proxy' | 'Connect';

/** Why a dial failed, in the words of ANP's `dial_failure_count` metric. */
export type DialFailureReason =
  | 'no_agent'
  | 'error_response'
  | 'unrecognized_response'
  | 'send_rsp'
  | 'backend_close'
  | 'backend_dial_timeout'
  | 'frontend_close';

export interface SessionInfo {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agentId: string;
  readonly hubId: string;
  readonly identifiers: AgentIdentifiers;
  /** `link` is our agent's HTTP/2 link, `packets` is ANP's AgentService.Connect. */
  readonly protocol: 'link' | 'packets';
  readonly remote: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

/** How a dial ended; `error` is unset for one that became a tunnel. */
export interface DialOutcome {
  readonly ms: number;
  readonly error?: DialError;
  readonly reason?: DialFailureReason;
  readonly agentId?: string;
  readonly sessionId?: string;
  readonly hubId?: string;
  readonly timing?: DialTiming;
}

export interface TunnelInfo {
  readonly role: Role;
  readonly dial: DialRequest;
  readonly agentId: string;
  readonly sessionId: string;
  readonly hubId: string;
  /** Milliseconds since the epoch. */
  readonly since: number;
  /** Bytes so far, caller to destination; live. */
  readonly up: number;
  /** Bytes so far, destination to caller; live. */
  readonly down: number;
  /** Bytes read from one side and not yet accepted by the other; live. */
  readonly queued?: number;
}

/** Who ended a tunnel. `plane` is a failure or shutdown of something between the two. */
export type ClosedBy = 'caller' | 'destination' | 'plane';

export interface TunnelOutcome {
  readonly ms: number;
  readonly closedBy: ClosedBy;
  /** Set if the tunnel did not end cleanly. */
  readonly error?: Error;
}

/** Where a certificate is used: on a port, or to authenticate to servers (`uplink`: an agent's; `peers`: both). */
export type CertificatePlace = 'callers' | 'agents' | 'peers' | 'admin' | 'uplink' | 'redis';

/** What a certificate says of itself. */
export interface CertificateFacts {
  /** Subject and serial number. */
  readonly name: string;
  /** Milliseconds since the epoch. */
  readonly validFrom: number;
}

/** Where records of audit go. */
export type AuditSink = 'log' | 'otlp';

/**
 * Everything worth counting, logging or tracing, as plain events. Metrics, logs and audit subscribe; the core does not know
 * them.
 */
export interface PlaneEventMap {
  'dial:start': [role: Role, dial: DialRequest];
  'dial:end': [role: Role, dial: DialRequest, outcome: DialOutcome];
  /** At the gateway: a dial starts to wait for a session (`park`), and stops waiting (`unpark`). */
  'dial:park': [dial: DialRequest];
  'dial:unpark': [dial: DialRequest];
  /**
   * A failure that no `dial:end` reports: an answer that nobody waits for, or one that could not be delivered to the caller. Only in
   * the latter case `dial` is set; its `dial:end` was emitted before.
   */
  'dial:failure': [reason: DialFailureReason, dial?: DialRequest];
  'tunnel:open': [tunnel: TunnelInfo];
  'tunnel:close': [tunnel: TunnelInfo, outcome: TunnelOutcome];
  /** Only one side of a link knew of a tunnel or dial, and ended it. */
  'tunnel:orphaned': [role: Role];
  /** A tunnel whose reader took nothing, and so held up the others of its packet stream, was ended. */
  'tunnel:stalled': [role: Role];
  /** At the hub: an agent's session. */
  'session:open': [session: SessionInfo];
  'session:drain': [session: SessionInfo];
  'session:close': [session: SessionInfo, reason: string];
  /** At the agent: its own link to a server. */
  'server:open': [
    server: { readonly address: string; readonly serverId: string; readonly protocol: 'link' | 'packets' },
  ];
  'server:close': [server: { readonly address: string; readonly serverId: string }, reason: string];
  'server:failure': [address: string, direction: 'to_server' | 'from_server', error: Error];
  /** At the agent: how many servers it knows. */
  'server:known': [count: number];
  /** At the agent: a destination could not be reached. */
  'endpoint:failure': [reason: 'timeout' | 'unknown'];
  /** At the gateway: a caller's connection. */
  'caller:open': [via: 'grpc' | 'http-connect'];
  'caller:close': [via: 'grpc' | 'http-connect'];
  /** At the gateway: a write to a caller was accepted, after `ms` milliseconds of waiting. */
  'caller:write': [ms: number];
  /** A packet stream (ProxyService.Proxy, AgentService.Connect) is not read because its consumer is full; then it is read again. */
  'receive:full': [method: GrpcMethod];
  'receive:free': [method: GrpcMethod];
  /** At the gateway: its link to a hub. */
  'peer:open': [hubId: string, address: string];
  'peer:close': [hubId: string, address: string, reason: string];
  /** At the gateway: a link to a hub could not be opened. */
  'peer:failure': [hubId: string, address: string, error: Error];
  packet: [segment: Segment, type: PacketType];
  /** `code` is a gRPC status name such as `Unavailable`. */
  'packet:error': [segment: Segment, code: string, type: PacketType | 'Unknown'];
  /** Something that a peer sent was refused; the rest of the plane was not disturbed. */
  refused: [where: string, remote: string, error: Error];
  /** An operator's `isthmus check` looks at this process's ports from there: what is refused of it is nobody's fault. */
  probe: [remote: string];
  /** A defect: code of ours threw where nothing should. What it served, such as a connection, was ended, and the process goes on. */
  fault: [where: string, remote: string, error: Error];
  /** A certificate is in force from now on, valid until then (milliseconds since the epoch): the first, or a renewed one. */
  certificate: [where: CertificatePlace, validUntil: number, about?: CertificateFacts];
  /** What stands now in a certificate's files cannot be used: a port goes on with what it had. */
  'certificate:failure': [where: CertificatePlace, error: Error];
  /** Another process runs under this one's id, which `warning` tells; without it, no other does any more. */
  namesakes: [memberId: string, warning: string | undefined];
  /** The registry's health changed. */
  registry: [state: 'up' | 'down', detail: string];
  /** At the gateway: this many audit records were lost on their way to a file or standard output, or over OTLP. */
  'audit:dropped': [sink: AuditSink, records: number];
}

export type PlaneEvents = EventEmitter<PlaneEventMap>;

/** `emit` never throws: a subscriber that does is reported as a `fault` of its own, and neither the plane nor the others notice. */
export function planeEvents(): PlaneEvents {
  const emitter: EventEmitter = new IsolatingEmitter((name, error) => {
    // Nobody is left to report to but the operator of this process.
    if (name === 'fault') process.emitWarning(error);
    else events.emit('fault', `subscriber of ${name}`, '', error);
  });
  const events = emitter as PlaneEvents;
  return events;
}
