import type { RoutingPart, SessionMove } from '@isthmus/admin';
import type { Registry } from '@isthmus/registry';
import type { AdmissionState, Check, Closing } from '@isthmus/service';
import type { ServerMetrics } from '@isthmus/telemetry';
import type { Dial, Directory, HubRecord, Observation, SessionInfo } from '@isthmus/tunnel';

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
}

export interface GatewayParts extends RoleParts {
  /** Returns the dial to a hub, or undefined while there is none. */
  readonly hub: (hubId: string) => Dial | undefined;
}

export interface HubParts extends RoleParts {
  readonly registry: Registry;
  readonly leases: ServerMetrics['leases'];
  readonly warn: (message: string) => void;
}

/** A running gateway. */
export interface Gateway {
  readonly addresses: readonly string[];
  readonly admission: AdmissionState;
  /** How an operator dials and asks how dials are routed. */
  readonly routing: RoutingPart;
  /** Whether callers on this machine find it. */
  readonly sockets: Check;
  /** Says of itself that callers should go elsewhere, and goes on serving them. */
  leave(): void;
  /**
   * Takes its unix sockets away: callers there wait for the next server, and would not if they met a GOAWAY. Resolves when
   * those that came before have dialled, as far as they do that at once.
   */
  hide(): Promise<void>;
  /** Hides, sends callers elsewhere and refuses new dials; resolves when those that are pending have their answer. */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}

/** A running hub. */
export interface Hub {
  readonly hubId: string;
  readonly dial: Dial;
  readonly agentAddress: string;
  /** Empty without a peer port. */
  readonly peerAddress: string;
  sessions(): Iterable<SessionInfo & { readonly draining: boolean }>;
  /** Ends these sessions at once, and every tunnel on them; agents connect again. @returns those that there were */
  kick(which: (session: SessionInfo) => boolean, reason: Error): SessionInfo[];
  readonly sessionCount: number;
  /** Tenants with sessions here, and how many. */
  readonly tenants: ReadonlyMap<string, number>;
  /** Where its agents could go if it drained. */
  moves(): Iterable<SessionMove>;
  /** Dials and tunnels. */
  readonly open: number;
  readonly admission: AdmissionState;
  /** Whether gateways can find this hub: not any more when another process has taken its id. */
  readonly registration: Check;
  /** The plane's hubs, this one included: passed on to agents. */
  membership(hubs: Iterable<HubRecord>): void;
  /** No other process runs under this hub's id any more: one that gave way takes agents again. */
  reclaim(): void;
  /** Says of itself that agents should go elsewhere, and goes on taking those that a balancer still sends. */
  leave(): void;
  /**
   * Takes no new agent, asks gateways and agents to go elsewhere, takes dials for an agent until it has, and resolves when
   * no tunnel runs any more.
   */
  drain(): Promise<void>;
  /** Ends everything at once. */
  close(): Promise<void>;
}
