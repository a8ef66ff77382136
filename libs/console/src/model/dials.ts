import { DialState } from '@isthmus/proto/admin-enums';
import { isRunning, type SeenDial } from './feed.ts';

/** What the operator looks for among the dials. */
export type Order = 'newest' | 'slowest' | 'failing' | 'parked';

export const ORDERS: readonly Order[] = ['newest', 'slowest', 'failing', 'parked'];

export function hasFailed({ dial }: SeenDial): boolean {
  return dial.state === DialState.DIAL_STATE_FAILED;
}

/** How long a dial took, or has taken so far. */
export function tookMs({ dial }: SeenDial, now: number): number {
  return dial.ms ?? Math.max(0, now - dial.startedMs);
}

/** Waits for a session, or has waited: a dial that runs and has no attempt yet may wait. */
export function isParked(seen: SeenDial): boolean {
  return seen.dial.parkedMs > 0 || (isRunning(seen) && seen.dial.attempts.length === 0);
}

/** @param agent part of the agent's id */
export function ordered(dials: readonly SeenDial[], order: Order, agent: string, now: number): SeenDial[] {
  const wanted = agent.trim().toLowerCase();
  const found = dials.filter(
    (seen) =>
      (wanted === '' || seen.dial.agentId.toLowerCase().includes(wanted)) &&
      (order !== 'failing' || hasFailed(seen)) &&
      (order !== 'parked' || isParked(seen)),
  );
  return order === 'slowest' ? found.sort((a, b) => tookMs(b, now) - tookMs(a, now)) : found;
}
