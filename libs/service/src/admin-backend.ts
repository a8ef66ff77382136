import type { SessionInfo, TunnelInfo } from '@isthmus/tunnel';

/** What is left when draining begins. */
export interface DrainSummary {
  /** Sessions that are told to move elsewhere. */
  readonly sessions: number;
  /** Tunnels that still run. */
  readonly tunnels: number;
}

/** A session as a hub holds it, or as a gateway knows it from the registry: without the wire under it. */
export type KnownSession = Omit<SessionInfo, 'protocol' | 'remote'> & Partial<SessionInfo>;

/** What a program shows and does on its admin port. */
export interface AdminBackend {
  sessions(): Iterable<KnownSession>;
  tunnels(): Iterable<TunnelInfo>;
  /** Begins to drain, and resolves without waiting for the end. Called again, it says what is left then. */
  drain(): Promise<DrainSummary>;
}
