import type { Directory, Quarantine } from '@isthmus/directory';
import type { FlagInForce } from '@isthmus/flags';
import type { adminApi } from '@isthmus/proto/admin';
import type { AdmissionState, Check, Metrics } from '@isthmus/service';
import type { AgentName, Ask, Hold, Operation, SessionInfo, TunnelInfo } from '@isthmus/tunnel';
import type { RoutingPart } from './calls/explain.ts';
import type { KickPart } from './calls/lists.ts';
import type { LogPart } from './calls/logs.ts';
import type { PlanePart, ServersPart } from './calls/members.ts';
import type { Recent } from './calls/recent.ts';
import type { Identity } from './calls/status.ts';
import type { TenantsPart } from './calls/tenants.ts';

/** What an operator should fix although the program is ready. */
export interface Notice {
  readonly kind:
    | 'tenant_file'
    | 'nodes'
    | 'certificate_expires'
    | 'certificate_expired'
    | 'certificate_fault'
    | 'servers';
  readonly text: string;
  /** What to do about it, unless the text says it. */
  readonly todo?: string;
}

/** Agents that get no new dials, in the whole plane. */
export interface QuarantinePart {
  /** @param reason undefined releases the agent. Rejects if the registry does not answer. */
  set(agent: AgentName, reason: string | undefined): Promise<unknown>;
  /** Returns why an agent is in quarantine, or undefined if it is not. */
  reasonFor(session: AgentName & { readonly credential?: string }): string | undefined;
  list(): Iterable<Quarantine>;
}

/** Returns quarantine that is written to the registry and read from this process's copy of it. */
export function quarantineIn(
  registry: { quarantine: QuarantinePart['set'] },
  directory: Pick<Directory, 'quarantines'>,
): QuarantinePart {
  return {
    set: (agent, reason) => registry.quarantine(agent, reason),
    reasonFor: (session) => directory.quarantines.ofSession(session)?.reason,
    list: () => directory.quarantines.inForce(),
  };
}

/** A session that a drain would move. A killed session counts as one elsewhere until the registry notices, up to 14 s later. */
export type SessionMove = Omit<adminApi.SessionMove, 'tunnels'>;

/** What a drain would do. */
interface DrainPlan {
  /** Sessions that would be told to move to another hub. */
  readonly sessions: number;
  /** The sessions of a hub, one by one. */
  readonly moves: Iterable<SessionMove>;
  /** How long running tunnels may take to finish, in milliseconds; unset without a limit. */
  readonly gracefulMs?: number;
  /** How long a tunnel of a gateway or agent has been idle that the drain ends in order, in milliseconds. Unset or 0: it ends none. */
  readonly idleMs?: number;
}

/** A session as a hub holds it, or as a gateway knows it from the registry: then without its connection. */
export type KnownSession = Omit<SessionInfo, 'protocol' | 'remote'> &
  Partial<SessionInfo> & {
    readonly draining?: boolean;
    /** When its agent began to drain, in milliseconds since the epoch, as its hub knows. */
    readonly drainingSince?: number;
    /** Whether its hub finds it silent. */
    readonly suspected?: boolean;
    readonly credential?: string;
  };

/**
 * What calls read of a process's last hour, or of one tenant's part of it. An agent has only its refusals and dials. Rates are of the whole
 * process: an operator of one tenant gets none.
 */
export type SeenLately = Omit<Recent, 'lost' | 'found' | 'follow' | 'rate' | 'watchers'> &
  Partial<Pick<Recent, 'rate'>>;

/** What a program shows and does on its admin port: the parts that every program has, and those that only some have. */
export interface AdminBackend {
  readonly identity: Identity;
  /** Whether it takes new work. */
  admission(): AdmissionState;
  /** The checks behind /readyz. */
  checks(): readonly Check[];
  sessions(): Iterable<KnownSession>;
  /** Number of sessions that a hub holds, or that a gateway alone knows; at an agent, its connections to servers. */
  sessionCount(): number;
  tunnels(): Iterable<TunnelInfo> & { readonly size: number };
  readonly recent: SeenLately;
  notices?(): readonly Notice[];
  /** Renders the page of metrics. */
  metrics(): ReturnType<Metrics>;
  readonly flags: readonly FlagInForce[];
  readonly log: LogPart;
  readonly kick: KickPart;
  /** Starts to drain. A second call changes nothing. */
  drain(): void;
  /** Returns what `drain` would do, and changes nothing. */
  plan(): DrainPlan;
  /** Set for a gateway. */
  readonly routing?: RoutingPart;
  /** Set for a gateway or hub. */
  readonly plane?: PlanePart;
  readonly quarantine?: QuarantinePart;
  /** Set with `--tenants-dir`. */
  readonly tenants?: TenantsPart;
  /** Set for a gateway: the processes of `isthmus hold` with links here. */
  holds?(): Promise<readonly Hold[]>;
  /** Called for what an operator did on the admin port, and for what it was refused. */
  readonly operated?: (operation: Operation) => void;
  /** Set for an agent. */
  readonly servers?: ServersPart;
  /** Asks any process of the plane. Unset: this one alone. */
  readonly ask?: Ask;
}
