import type { adminApi } from '@isthmus/proto/admin';
import { getOrPut } from '@isthmus/runtime';
import { formatDestination, type Role } from '@isthmus/tunnel';
import { ADMIN } from '../defaults.ts';
import type { SeenDial } from './recent-dials.ts';

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
