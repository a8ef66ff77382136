import { memoryLimit, SharedBudget } from '@isthmus/runtime';
import type { ResumeOptions } from '@isthmus/tunnel';
import { FlagError } from '../error.ts';
import { duration, int, topic, type Values } from '../flag.ts';

const MIB = 1024 * 1024;

/** What a program needs of its memory limit before tunnels may keep any of it, in bytes. They may keep a quarter of the rest. */
const NEEDED = 32 * MIB;
const PART_KEPT = 1 / 4;

export const resume = topic('Behaviour', {
  'resume-timeout': duration(
    120_000,
    'How long a tunnel outlives what carries it: it waits so long for another way between gateway and agent. The default outlives a snapshot of a machine. 0 turns this off. See docs/RESUME.md.',
    { own: true },
  ),
  'resume-memory': int(
    64,
    'MiB that all tunnels together may keep until the other end has them, beyond 256 KiB each. Above it they are slower, and nothing is lost. At most a quarter of what a memory limit leaves beyond 32 MiB.',
    { own: true },
  ),
});

export function checkResume(flags: Values<typeof resume>): void {
  const memory = flags['resume-memory'];
  if (memory < 0 || memory > 65_536) throw new FlagError('resume-memory', `bad size ${memory}: want 0 to 65536 MiB`);
}

/** @returns undefined if tunnels are not resumed */
export function resumeOptions(flags: Values<typeof resume>): ResumeOptions | undefined {
  const timeoutMs = flags['resume-timeout'];
  if (timeoutMs === 0) return undefined;
  return { timeoutMs, budget: new SharedBudget(resumeBudget(flags['resume-memory'] * MIB, memoryLimit())) };
}

/** Returns how many bytes of those wanted fit a memory limit, in bytes. 0 is no limit. */
export function resumeBudget(wanted: number, limit: number): number {
  return limit === 0 ? wanted : Math.min(wanted, Math.max(0, limit - NEEDED) * PART_KEPT);
}
