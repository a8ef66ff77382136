import type { SessionInfo, TunnelInfo } from '@isthmus/tunnel';
import type { KickPart } from './admin/kick.ts';
import type { LogPart } from './admin/logs.ts';
import type { PlanePart, ServersPart } from './admin/members.ts';
import type { QuarantinePart } from './admin/quarantine-part.ts';
import type { RecentDials } from './admin/recent-dials.ts';
import type { RecentRefusals } from './admin/recent-refusals.ts';
import type { RoutingPart } from './admin/routing.ts';
import type { Identity } from './admin/status.ts';
import type { FlagInForce } from './flags/in-force.ts';
import type { Check } from './health.ts';

/** What is left when draining begins. */
export interface DrainSummary {
  /** Sessions that are told to move elsewhere. */
  readonly sessions: number;
  /** Tunnels that still run. */
  readonly tunnels: number;
}

/** A session that a drain would move. */
export interface SessionMove {
  readonly sessionId: string;
  readonly tenant: string;
  readonly agentId: string;
  /**
   * The agent's sessions with other hubs that stay, as far as this process knows. One that was killed counts until the registry
   * misses it: up to 13 s.
   */
  readonly elsewhere: number;
}

/** What a drain would do. */
export interface DrainPlan {
  /** Sessions that would be told to move elsewhere. */
  readonly sessions: number;
  /** A hub's sessions, one by one. */
  readonly moves: Iterable<SessionMove>;
  /** How long running tunnels may finish, in milliseconds; unset without a limit. */
  readonly gracefulMs?: number;
}

/** A session as a hub holds it, or as a gateway knows it from the registry: without the wire under it. */
export type KnownSession = Omit<SessionInfo, 'protocol' | 'remote'> &
  Partial<SessionInfo> & { readonly draining?: boolean };

/** What a program shows and does on its admin port: what every program has, and the parts that some have. */
export interface AdminBackend {
  readonly identity: Identity;
  /** What /readyz goes by. */
  checks(): readonly Check[];
  sessions(): Iterable<KnownSession>;
  /** How many those are; at an agent its connections to servers. */
  sessionCount(): number;
  tunnels(): Iterable<TunnelInfo> & { readonly size: number };
  readonly dials: RecentDials;
  readonly refusals: RecentRefusals;
  /** What an operator should mend though the program is ready. */
  warnings?(): readonly string[];
  readonly flags: readonly FlagInForce[];
  readonly log: LogPart;
  readonly kick: KickPart;
  /** Begins to drain, and resolves without waiting for the end. Called again, it says what is left then. */
  drain(): Promise<DrainSummary>;
  /** Says what `drain` would do, and changes nothing. */
  plan(): DrainPlan;
  /** Of a gateway. */
  readonly routing?: RoutingPart;
  /** Of a gateway or hub. */
  readonly plane?: PlanePart;
  readonly quarantine?: QuarantinePart;
  /** Of an agent. */
  readonly servers?: ServersPart;
}

export interface Drainable {
  /** Unset for a program that holds no sessions. */
  readonly hub?: { readonly sessionCount: number; moves(): Iterable<SessionMove> };
  readonly tunnels: { readonly size: number };
  readonly drain: () => Promise<void>;
  readonly gracefulMs: number;
}

/** How a server-side program drains when it is asked on its admin port. */
export function drainBackend({ hub, tunnels, drain, gracefulMs }: Drainable): Pick<AdminBackend, 'drain' | 'plan'> {
  const sessions = () => hub?.sessionCount ?? 0;
  return {
    async drain() {
      const summary = { sessions: sessions(), tunnels: tunnels.size };
      void drain();
      return summary;
    },
    plan: () => ({ sessions: sessions(), moves: hub?.moves() ?? [], gracefulMs }),
  };
}
