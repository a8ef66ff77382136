import type { DialError } from './errors.ts';

/** Why a gateway made an attempt: it was the first, an earlier one failed, or an earlier one was silent. */
export type AttemptKind = 'first' | 'retry' | 'hedge';

/** One try of a dial through one session. */
export interface AttemptRecord {
  readonly kind: AttemptKind;
  readonly sessionId: string;
  readonly agentId: string;
  readonly hubId: string;
  /** Milliseconds of `performance.now()` of this process. */
  readonly start: number;
  /** Milliseconds; unset while it runs. */
  ms?: number;
  /** `overtaken`: another attempt was answered first, or the caller gave up. */
  outcome: 'running' | 'established' | 'failed' | 'overtaken';
  /** Why it failed. Unset for an attempt that was overtaken, or whose caller gave up. */
  error?: DialError;
}

/** What a gateway did for one dial. It grows while the dial runs, and is complete once the dial has its answer. */
export interface DialLog {
  /** In the order in which they started. */
  readonly attempts: AttemptRecord[];
  /** How long the dial waited for a session in total, in milliseconds; 0 for most. */
  parkedMs: number;
}

export function dialLog(): DialLog {
  return { attempts: [], parkedMs: 0 };
}
