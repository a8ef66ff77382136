import type { adminApi } from '@isthmus/proto/admin';
import { formatDestination, getOrPut, type Role } from '@isthmus/tunnel';
import type { SeenDial, SeenDials } from './recent-dials.ts';

/** How long ago a failure may be, in milliseconds. */
const WITHIN_MS = 300_000;

/** Fewer failures may be chance: a pod that was just deleted. */
const LEAST_FAILURES = 3;

/** How many kinds are reported, and how many agents of each are named. */
const MAX_REPORTED = 10;
const MOST_AGENTS = 5;

interface Failing {
  readonly last: SeenDial;
  readonly count: number;
  readonly agents: ReadonlySet<string>;
}

/**
 * Returns what fails again and again, and has not succeeded since. A slow failure counts for as much as a fast one: those of which there
 * are most in the last five minutes come first.
 */
export function failingDials(dials: SeenDials, role: Role, now = performance.now()): adminApi.FailingDials[] {
  const found = new Map<string, Map<string, Failing>>();
  for (const dial of dials) {
    const { outcome, tenant, destination } = dial;
    if (dial.role !== role || !outcome || dial.start + outcome.ms < now - WITHIN_MS) continue;
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
    .filter(({ count }) => count >= LEAST_FAILURES)
    .sort((a, b) => b.count - a.count)
    .slice(0, MAX_REPORTED)
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
    count: BigInt(count),
    lastMs: BigInt(Math.round(Date.now() - agoMs)),
    agents: [...agents].slice(0, MOST_AGENTS),
    agentCount: agents.size,
  };
}
