import type { Member, PlaneEvents } from '@isthmus/tunnel';
import type { Registry } from './registry.ts';
import { Roster } from './roster.ts';

export interface PlaneRoll {
  readonly roster: Roster;
  /** What operators should mend though the process is ready. */
  warnings(): readonly string[];
}

/** Follows who is in the plane, and whether this process is alone under its --server-id. @param freed called when it is alone again */
export function planeRoll(
  registry: Registry,
  own: Member,
  closing: { defer(end: () => void): void },
  { events, freed = () => {} }: { readonly events: PlaneEvents; readonly freed?: () => void },
): PlaneRoll {
  const stop = new AbortController();
  closing.defer(() => stop.abort());
  let warnings: readonly string[] = [];
  const namesakes = (others: readonly Member[]) => {
    warnings = others.length === 0 ? [] : [sameId(own.memberId, others)];
    events.emit('namesakes', own.memberId, warnings[0]);
    if (others.length === 0) freed();
  };
  return { roster: new Roster(registry, { own, namesakes, signal: stop.signal }), warnings: () => warnings };
}

function sameId(id: string, others: readonly Member[]): string {
  const where = others.map(({ host, adminAddress, since }) => {
    return `on ${host}, admin port ${adminAddress}, since ${new Date(since).toISOString()}`;
  });
  return `another process uses --server-id ${id}: ${where.join('; ')}. Give each server its own id`;
}
