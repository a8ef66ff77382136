import type { PlaneEvents } from '@isthmus/tunnel';
import type { Member } from './records.ts';
import type { Registry } from './registry.ts';
import { Roster, type RosterOptions } from './roster.ts';

export interface PlaneRoll {
  readonly roster: Roster;
  /** What operators should fix although the process is ready. */
  warnings(): readonly string[];
}

interface RollOptions {
  readonly events: PlaneEvents;
  /** Called when no other process has this one's id any longer. */
  readonly freed?: () => void;
  readonly looked?: RosterOptions['looked'];
}

/** Follows the plane's members and warns when another has this process's --server-id. */
export function planeRoll(
  registry: Registry,
  own: Member,
  closing: { defer(end: () => void): void },
  { events, freed = () => {}, looked = () => {} }: RollOptions,
): PlaneRoll {
  const stop = new AbortController();
  closing.defer(() => stop.abort());
  let warnings: readonly string[] = [];
  const namesakes = (others: readonly Member[]) => {
    warnings = others.length === 0 ? [] : [sameId(own.memberId, others)];
    events.emit('namesakes', own.memberId, warnings[0]);
    if (others.length === 0) freed();
  };
  return { roster: new Roster(registry, { own, namesakes, looked, signal: stop.signal }), warnings: () => warnings };
}

function sameId(id: string, others: readonly Member[]): string {
  const where = others.map(({ host, adminAddress, since }) => {
    return `on ${host}, admin port ${adminAddress}, started ${new Date(since).toISOString()}`;
  });
  return `another process uses --server-id ${id}: ${where.join('; ')}. Give each server its own id`;
}
