import { setTimeout as pause } from 'node:timers/promises';
import type { Load } from '../rig/calling.ts';
import { clock } from '../rig/clock.ts';
import { quantile } from '../rig/figures.ts';
import type { DialRecord } from '../rig/load/messages.ts';
import type { Topology } from '../rig/plane.ts';

const LOOK_EVERY = 200;
/** Only the last second counts. */
const WINDOW = 1000;
const GIVE_UP = 60_000;
/** Up to this many milliseconds, a slower dial is only the noise of the machine. */
const LEAST_SLOW = 50;

/** What the slowest of a hundred dials took, in milliseconds. */
export function p99(dials: readonly DialRecord[]): number {
  const took = dials.map(({ ms }) => ms);
  return quantile(took, 0.99);
}

export interface Normal {
  /** From the end of the fault to the first second in which all was normal; undefined if it never was. */
  readonly ms?: number;
  /** What was last seen missing. */
  readonly lacking: string;
}

/**
 * Waits until dials are as fast as before, every tunnel carries data, and the plane is whole.
 * @param before what the slowest of a hundred dials took, in milliseconds; undefined if times are not judged
 */
export async function normalAgain(
  load: Load,
  plane: Topology,
  before: number | undefined,
  over: number,
): Promise<Normal> {
  const usual = usualOf(load, before);
  for (let lacking = ''; ; ) {
    const now = clock();
    const found = lackingIn(load, now, usual) ?? (await plane.missing().catch((error: Error) => error.message));
    if (!found) return { ms: Math.max(0, now - WINDOW - over), lacking };
    lacking = found;
    if (now - over > GIVE_UP) return { lacking };
    await pause(LOOK_EVERY);
  }
}

interface Usual {
  /** Dials that are answered per second. */
  readonly answered: number;
  /** How long the slowest of a hundred may take, in milliseconds. */
  readonly slow: number;
}

function usualOf({ settings }: Load, before: number | undefined): Usual {
  if (before === undefined) return { answered: 1, slow: Number.POSITIVE_INFINITY };
  return { answered: settings.dialsPerSecond / 2, slow: Math.max(2 * before, LEAST_SLOW) };
}

function lackingIn({ dials, moving, settings }: Load, now: number, { answered, slow }: Usual): string | undefined {
  const recent = dials.filter(({ at, ms }) => at + ms > now - WINDOW);
  if (recent.length < answered) return `${recent.length} dials were answered in the last second`;
  const failed = recent.filter(({ outcome }) => outcome !== 'ok');
  if (failed.length > 0) return `${failed.length} dials failed: ${failed[0]?.error}`;
  const slowest = p99(recent);
  if (slowest > slow) return `dials take ${Math.round(slowest)} ms (p99)`;
  return moving < settings.tunnels ? `${moving} of ${settings.tunnels} tunnels carry bytes` : undefined;
}
