import type { KnownSession, RoutingPart, SessionMove } from '@isthmus/admin';
import type { Admission } from '@isthmus/admission';
import type { Directory, HubRecord, Registry } from '@isthmus/directory';
import type { AdmissionState, Check, Closing } from '@isthmus/service';
import type { ServerMetrics } from '@isthmus/telemetry';
import type { ChooseTls, OtherCertificate } from '@isthmus/transport';
import type { Ask, Hold, NextHop, Observation, Question, SessionInfo, TunnelTable } from '@isthmus/tunnel';
import type { DialsHeld, SessionsHeld, tenantViews } from './tenancy/views.ts';

/** The roles of a server program. At least one is set; with both, dials to the hub's own sessions are function calls. */
export interface Roles<Flags> {
  readonly gateway?: (flags: Flags, parts: GatewayParts) => Promise<Gateway>;
  readonly hub?: (flags: Flags, parts: HubParts) => Promise<Hub>;
}

/** What every role gets from the server that runs it. */
interface RoleParts {
  /** A role defers its own end here. */
  readonly closing: Closing;
  readonly directory: Directory;
  readonly observation: Observation;
  /** Unset: there is one tenant, `default`, and no credential names another. */
  readonly tenancy?: Tenancy;
}

export interface GatewayParts extends RoleParts {
  /** Returns the link to a hub, or undefined while there is none. */
  readonly nextHop: (hubId: string) => NextHop | undefined;
  /** Those of this process. */
  readonly tunnels: TunnelTable;
  /** Who callers are without tenants, where some show tokens. Unset: none does. */
  readonly callerTokens?: Admission;
  /** Names this process to hubs and agents. */
  readonly instance: string;
}

export interface HubParts extends RoleParts {
  readonly registry: Registry;
  /** Answers questions that come over links. */
  readonly answer: Ask;
  readonly leases: ServerMetrics['leases'];
  readonly warn: (message: string) => void;
}

/** A running gateway. */
export interface Gateway extends DialsHeld {
  readonly addresses: readonly string[];
  readonly admission: AdmissionState;
  /** How an operator dials and asks how dials are routed. */
  readonly routing: RoutingPart;
  /** Whether callers on this machine can reach its unix sockets. */
  readonly sockets: Check;
  /** Bytes that tunnels keep until their agents have them; undefined if tunnels are not resumed. */
  readonly kept: number | undefined;
  /** The processes of `isthmus hold` with links here. */
  holds(): Promise<readonly Hold[]>;
  /** Reports not ready, so that callers go to other gateways, and keeps serving. */
  leave(): void;
  /**
   * Removes its unix sockets: callers there then wait for the next server, and would fail at a GOAWAY. Resolves when callers that
   * connected before have dialled, or after a second.
   */
  hide(): Promise<void>;
  /** Hides, sends callers to other gateways and rejects new dials. Resolves when pending dials have their answers. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
  /** Cuts every tunnel of its callers now. */
  cut(): void;
}

/** The sessions of a hub. */
interface HubSessions {
  readonly size: number;
  /** How many there are, by tenant. */
  readonly tenants: ReadonlyMap<string, number>;
  list(): Iterable<SessionInfo & KnownSession>;
  /** Ends these and their tunnels at once; agents reconnect. @returns the ended sessions */
  kick(which: (session: SessionInfo) => boolean, reason: Error): SessionInfo[];
}

/** A running hub. */
export interface Hub extends NextHop, SessionsHeld {
  readonly hubId: string;
  readonly agentAddress: string;
  /** Empty without a peer port. */
  readonly peerAddress: string;
  /** What it tells of itself. */
  readonly record: HubRecord;
  readonly sessions: HubSessions;
  /** Returns the way to ask a gateway or agent with a link here. */
  asker(to: Question['to']): Ask | undefined;
  /** The gateways that can be asked. */
  readonly gateways: readonly string[];
  /** Where its agents could move in a drain. */
  moves(): Iterable<SessionMove>;
  readonly admission: AdmissionState;
  /** Whether gateways can find this hub. Fails when another process has registered under its id. */
  readonly registration: Check;
  /** Passes the plane's hubs, including this one, on to agents. */
  membership(hubs: Iterable<HubRecord>): void;
  /** Resolves when another process has registered under this hub's id, and says which. This one is then to end. */
  readonly superseded: Promise<Error>;
  /** Reports not ready, and keeps accepting the agents that a balancer still sends. */
  leave(): void;
  /**
   * Accepts no new agents, and asks gateways and agents to use other hubs. Serves dials for an agent until it has moved. Resolves
   * when no tunnel is left.
   */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}

/** The tenants of a server with `--tenants-dir`: who peers are and what they may, and the certificates that tenants show. */
export interface Tenancy extends Admission {
  /** What operators, metrics and health checks see of them. */
  readonly views: ReturnType<typeof tenantViews>;
  /** For `ListenOptions.chooseTls`: the certificate of the tenant that a server name (SNI) selects. Undefined: it selects none. */
  readonly chooseTls: ChooseTls;
  /** For `ListenOptions.instead`, at a tenant's own port: the certificate of the tenant's file as it is in force. */
  certificateOf(tenant: string): OtherCertificate;
}
