import type { adminApi } from '@isthmus/proto/admin';
import type { AttemptRecord, DialTiming } from '@isthmus/tunnel';
import type { SeenDial } from './recent-dials.ts';

interface Span {
  readonly startMs: number;
  readonly ms: number;
}

/**
 * Returns where a dial's time went. The gateway's total contains the wait for a session and the attempts. The answered attempt contains
 * the hub, the agent, DNS and connect. The destination's first byte comes last.
 */
export function phasesOf({ log, outcome, start, firstByteMs }: SeenDial): adminApi.Phase[] {
  if (!outcome) return [];
  const whole = { startMs: 0, ms: outcome.ms };
  const failed = outcome.error ? `${outcome.error.code}: ${outcome.error.message}` : '';
  const phases: adminApi.Phase[] = [{ name: 'gateway', depth: 0, ...whole, detail: failed }];
  const attempts = log?.attempts ?? [];
  if (log && log.parkedMs > 0) phases.push(parked(log.parkedMs, attempts[0], start));
  const answered = attempts.find((attempt) => attempt.outcome === 'established') ?? attempts.at(-1);
  for (const attempt of attempts) {
    const span = { startMs: Math.max(0, attempt.start - start), ms: attempt.ms ?? 0 };
    phases.push({ name: 'attempt', depth: 1, ...span, detail: described(attempt) });
    if (attempt === answered && outcome.timing) phases.push(...beyond(span, attempt, outcome.timing));
  }
  if (firstByteMs !== undefined) {
    phases.push({ name: 'first_byte', depth: 0, startMs: outcome.ms, ms: firstByteMs, detail: 'from the destination' });
  }
  return phases;
}

/** A parked dial waits before its first attempt. Later parking is added to the same phase. */
function parked(ms: number, first: AttemptRecord | undefined, start: number): adminApi.Phase {
  const startMs = first ? Math.max(0, first.start - start - ms) : 0;
  return { name: 'park', depth: 1, startMs, ms, detail: 'no session to try' };
}

function described({ kind, agentId, hubId, sessionId, outcome, error }: AttemptRecord): string {
  const failed = error ? `: ${error.code}, ${error.message}` : '';
  return `${kind}, agent ${agentId} on hub ${hubId}, session ${sessionId}, ${outcome}${failed}`;
}

/** The times that hub and agent reported, each centred in the phase around it. */
function beyond(attempt: Span, { hubId, agentId }: AttemptRecord, timing: DialTiming): adminApi.Phase[] {
  const { hubMs, agentMs, dnsMs, connectMs } = timing;
  const phases: adminApi.Phase[] = [];
  let around = attempt;
  let depth = 2;
  const enter = (name: string, ms: number | undefined, detail: string) => {
    if (ms === undefined) return;
    around = inMiddle(around, ms);
    phases.push({ name, depth: depth++, ...around, detail });
  };
  enter('hub', hubMs, hubId);
  enter('agent', agentMs, agentId);
  // The agent resolves and connects.
  const both = inMiddle(around, (dnsMs ?? 0) + (connectMs ?? 0));
  if (dnsMs !== undefined) phases.push({ name: 'dns', depth, startMs: both.startMs, ms: dnsMs, detail: '' });
  if (connectMs !== undefined) {
    const startMs = both.startMs + (dnsMs ?? 0);
    phases.push({ name: 'connect', depth, startMs, ms: connectMs, detail: '' });
  }
  return phases;
}

/** Clocks of other machines differ from ours. A part longer than the whole keeps its reported length and starts where the whole starts. */
function inMiddle({ startMs, ms: whole }: Span, ms: number): Span {
  return { startMs: startMs + Math.max(0, whole - ms) / 2, ms };
}
