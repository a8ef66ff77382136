import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut } from '@isthmus/runtime';
import {
  type Destination,
  type DialLog,
  type DialOutcome,
  type DialRequest,
  formatDestination,
  type Role,
} from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';

/** A dial as one role saw it. It references no stream, signal or callback of the dial. */
export interface SeenDial {
  readonly role: Role;
  readonly id: string;
  readonly tenant: string;
  readonly destination: Destination;
  readonly caller: DialRequest['caller'];
  readonly trial: DialRequest['trial'];
  readonly traceparent: string | undefined;
  /** Set only for the gateway role. In a process with both roles, the hub's dial carries it too. */
  readonly log: DialLog | undefined;
  /** The session that a gateway sent it to. Unset in the gateway's own view. */
  readonly session: string | undefined;
  /** When it started, in milliseconds of `performance.now()`. */
  readonly start: number;
  /** Unset while it runs. */
  readonly outcome: DialOutcome | undefined;
  /** From the answer to the destination's first byte. Set only for the gateway role, once the byte has passed. */
  readonly firstByteMs?: number;
}

export function seenDial(role: Role, dial: DialRequest, start: number, outcome: DialOutcome | undefined): SeenDial {
  const { id, tenant, destination, caller, trial, traceparent, session } = dial;
  const log = role === 'gateway' ? dial.log : undefined;
  return { role, id, tenant, destination, caller, trial, traceparent, log, session, start, outcome };
}

interface Failing {
  readonly last: SeenDial;
  readonly count: number;
  readonly agents: ReadonlySet<string>;
}

/**
 * Returns what fails again and again, and has not succeeded since. A slow failure counts for as much as a fast one: those of which there
 * are most in the last five minutes come first.
 */
export function failingDials(dials: Iterable<SeenDial>, role: Role, now = performance.now()): adminApi.FailingDials[] {
  const found = new Map<string, Map<string, Failing>>();
  for (const dial of dials) {
    const { outcome, tenant, destination, trial } = dial;
    // What an operator tried and did not reach, no caller missed.
    if (outcome?.error && trial) continue;
    if (dial.role !== role || !outcome || dial.start + outcome.ms < now - ADMIN.failingWithinMs) continue;
    const key = JSON.stringify([tenant, formatDestination(destination)]);
    if (!outcome.error) found.delete(key);
    else
      add(
        getOrPut(found, key, () => new Map()),
        outcome.error.code,
        dial,
      );
  }
  return [...found.values()]
    .flatMap((codes) => [...codes.values()])
    .filter(({ count }) => count >= ADMIN.failures)
    .sort((a, b) => b.count - a.count)
    .slice(0, ADMIN.failingReported)
    .map((failing) => message(failing, now));
}

function add(codes: Map<string, Failing>, code: string, dial: SeenDial): void {
  const { count = 0, agents = new Set<string>() } = codes.get(code) ?? {};
  const agent = dial.outcome?.agentId ?? dial.log?.attempts.at(-1)?.agentId;
  codes.set(code, { last: dial, count: count + 1, agents: agent === undefined ? agents : new Set([...agents, agent]) });
}

function message({ last, count, agents }: Failing, now: number): adminApi.FailingDials {
  const { tenant, destination, start, outcome } = last;
  const agoMs = now - (start + (outcome?.ms ?? 0));
  return {
    tenant,
    destination: formatDestination(destination),
    code: outcome?.error?.code ?? '',
    text: outcome?.error?.message ?? '',
    count,
    lastMs: Math.round(Date.now() - agoMs),
    agents: [...agents].slice(0, ADMIN.failingAgents),
    agentCount: agents.size,
  };
}
