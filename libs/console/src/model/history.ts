import type { History } from '../rpc.ts';

type Slots = History['slots'];

/** Leaves out the interval that still runs, the last one: its counts are not all there, and would look like a fall. */
export function finished(slots: Slots): Slots {
  return slots.slice(0, -1);
}

/** The places of values that have none on either side: a line has two ends, so it does not show them. */
export function lonePoints(values: readonly (number | null | undefined)[]): number[] {
  const known = (at: number) => values[at] !== null && values[at] !== undefined;
  return values.flatMap((_value, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []));
}

/** The slots of each minute as one, the newest first. */
export function minutesOf(slots: Slots): Slots {
  const minutes = new Map<number, Slots[number][]>();
  for (const slot of slots) {
    const minute = Math.floor(slot.startMs / 60_000) * 60_000;
    minutes.set(minute, [...(minutes.get(minute) ?? []), slot]);
  }
  return [...minutes].reverse().map(([startMs, own]) => {
    const sum = (of: 'dials' | 'failures') => own.reduce((total, slot) => total + slot[of], 0);
    const slowest = (of: 'p50Ms' | 'p99Ms') => own.map((slot) => slot[of]).reduce(most, undefined);
    const { sessions, tunnels } = own.findLast((slot) => slot.sessions !== undefined) ?? {};
    const times = { p50Ms: slowest('p50Ms'), p99Ms: slowest('p99Ms') };
    return { startMs, dials: sum('dials'), failures: sum('failures'), ...times, sessions, tunnels };
  });
}

/**
 * The last hour of several gateways as one. A percentile is that of the slowest of them; each knows all sessions, so the most that one knows
 * counts.
 */
export function together(all: readonly History[]): Pick<History, 'slotMs' | 'slots'> {
  const slotMs = all[0]?.slotMs ?? 0;
  const slots = new Map<number, Slots[number]>();
  for (const slot of all.flatMap((history) => history.slots)) {
    const startMs = Math.floor(slot.startMs / slotMs) * slotMs;
    const before = slots.get(startMs) ?? { startMs, dials: 0, failures: 0 };
    slots.set(startMs, {
      startMs,
      dials: before.dials + slot.dials,
      failures: before.failures + slot.failures,
      p50Ms: most(before.p50Ms, slot.p50Ms),
      p99Ms: most(before.p99Ms, slot.p99Ms),
      sessions: most(before.sessions, slot.sessions),
      tunnels: slot.tunnels === undefined ? before.tunnels : (before.tunnels ?? 0) + slot.tunnels,
    });
  }
  return { slotMs, slots: [...slots.values()].sort((a, b) => a.startMs - b.startMs) };
}

function most(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}
