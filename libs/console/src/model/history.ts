import type { History } from '../rpc.ts';
import { clock, millis } from './text.ts';

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

/** Rows of a table by the minute, the newest first. */
export function minutesOf(slots: Slots) {
  const minutes = new Map<number, Slots[number][]>();
  for (const slot of slots) {
    const minute = Math.floor(slot.startMs / 60_000) * 60_000;
    minutes.set(minute, [...(minutes.get(minute) ?? []), slot]);
  }
  return [...minutes].reverse().map(([minute, own]) => {
    const sum = (of: 'dials' | 'failures') => own.reduce((total, slot) => total + slot[of], 0).toLocaleString('en');
    const most = (of: 'p50Ms' | 'p99Ms') => {
      const known = own.map((slot) => slot[of]).filter((value) => value !== undefined);
      return millis(known.length === 0 ? undefined : Math.max(...known));
    };
    const { sessions, tunnels } = own.findLast((slot) => slot.sessions !== undefined) ?? {};
    return {
      key: `${minute}`,
      cells: [
        clock(minute),
        sum('dials'),
        sum('failures'),
        most('p50Ms'),
        most('p99Ms'),
        sessions ?? '–',
        tunnels ?? '–',
      ],
    };
  });
}
