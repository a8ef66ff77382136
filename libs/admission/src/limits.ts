import type { DialLimits } from '@isthmus/tunnel';
import { bytesOf, type TenantFile } from './tenant-schema.ts';

/** What a tenant may use, in the whole of one process. */
export interface TenantLimits extends DialLimits {
  readonly agents: number;
  readonly sessionsPerAgent: number;
  readonly sessions: number;
  /** Identifiers of one session. */
  readonly identifiers: number;
  /** Fresh tokens that are verified for open sessions. */
  readonly renewalsPerSecond: number;
}

/**
 * A healthy cluster of 5,000 nodes stays below all of them. Bytes a second are not limited: fairness between tenants does without.
 */
export const DEFAULT_LIMITS: TenantLimits = {
  agents: 10_000,
  sessionsPerAgent: 50,
  sessions: 100_000,
  identifiers: 1000,
  renewalsPerSecond: 200,
  dialsPerSecond: 2000,
  burst: 4000,
  pendingDials: 2000,
  tunnels: 50_000,
  bytesPerSecond: Number.POSITIVE_INFINITY,
  bytesQueued: 256 * 1024 * 1024,
};

export function limitsOf(file: TenantFile['limits']): TenantLimits {
  if (!file) return DEFAULT_LIMITS;
  const { bytesPerSecond, bytesQueued, ...counts } = file;
  return {
    ...DEFAULT_LIMITS,
    ...counts,
    ...(counts.dialsPerSecond !== undefined && counts.burst === undefined && { burst: 2 * counts.dialsPerSecond }),
    ...(bytesPerSecond !== undefined && { bytesPerSecond: bytesOf(bytesPerSecond) }),
    ...(bytesQueued !== undefined && { bytesQueued: bytesOf(bytesQueued) }),
  };
}
