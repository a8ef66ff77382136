import { adminApi, namesOf } from '@isthmus/proto/admin';
import { printable } from '@isthmus/runtime';
import { Option } from 'commander';
import type { Call } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type Kind, type ListColumn, listCommand, rowsTable } from '../lists.ts';
import { age, isoTime, plural, type Style } from '../output.ts';
import { type Answer, roleNames } from '../plane/member.ts';

export interface EventView {
  /** What it happened to, and when it was first seen. */
  readonly event: string;
  readonly at: string;
  readonly agoMs: number;
  readonly type: 'came' | 'drains' | 'went' | 'refused' | 'registry';
  /** agent, hub, gateway, peer (somebody who was refused) or registry. */
  readonly kind: string;
  readonly name: string;
  readonly tenant: string;
  readonly detail: string;
  /** Who saw it first. */
  readonly seenBy: string;
}

/** An event before it is one among others. */
type Seen = Omit<EventView, 'event' | 'at'> & {
  readonly atMs: number;
  /** Where, if it may happen at several hubs. */
  readonly hub: string;
  /** Names the event where a later report of it has other times and names. */
  readonly event?: string;
};

interface Options {
  readonly for?: string;
}

export const EVENTS: Kind<EventView> = {
  name: 'events',
  one: 'event',
  past: true,
  names: ({ event }) => [event],
  columns: () => COLUMNS,
  async ask(call: Call<Options>) {
    const { tenant, for: wanted } = call.options;
    const met = await call.plane();
    const [happened, histories] = await Promise.all([met.ask('listEvents', {}), met.ask('getHistory', { tenant })]);
    const all = eventsOf([...happened.answers.flatMap(happenedAt), ...histories.answers.flatMap(refusedAt)]);
    const items = all
      .filter((event) => wanted === undefined || event.name === wanted)
      .filter((event) => tenant === '' || event.tenant === tenant);
    const silent = [...happened.unanswered, ...histories.unanswered].map((each) => [each.member, each] as const);
    return {
      items,
      unanswered: [...new Map(silent).values()],
      text: (shown, style) => eventsText(shown, style, wanted),
    };
  },
};

export const events = listCommand(EVENTS, {
  summary: 'List what came, went, drained and was refused in the last hour',
  details:
    'From what members keep while they run, so what a member saw goes with it, and a busy one may lack older events.',
  args: [],
  options: [new Option('--for <name>', 'only events of this agent, hub or gateway')],
  examples: {
    events: 'the newest last',
    'events --for agent-3': 'does it come and go?',
    'events --field-selector type=went -w': 'who is lost from now on',
  },
});

/** Whom a member refused. */
export function refusedAt({
  member: { id: seenBy },
  value,
}: Answer<Pick<adminApi.GetHistoryResponse, 'refusals' | 'nowMs'>>): Seen[] {
  return value.refusals.map(({ where, remote: name, reason, count, firstMs, lastMs: atMs }): Seen => {
    const detail = `at the port for ${where}: ${reason}${count > 1 ? ` (${plural(count, 'time')})` : ''}`;
    // The remote and the time are those of the last one.
    const event = `${seenBy}.${where}.${firstMs.toString(16)}`;
    const agoMs = Math.max(0, value.nowMs - atMs);
    return { event, atMs, agoMs, type: 'refused', kind: 'peer', name, tenant: '', hub: '', detail, seenBy };
  });
}

const TYPES = namesOf(adminApi.Event_Type, 'TYPE');

/** What a member kept. What a later version also keeps is left out. */
export function happenedAt({ member: { id: seenBy }, value }: Answer<adminApi.ListEventsResponse>): Seen[] {
  return value.events.flatMap(({ type: told, role, tenant, id: name, hubId: hub, address, reason, atMs }): Seen[] => {
    const type = TYPES[told];
    if (type === undefined) return [];
    const common = { atMs, agoMs: Math.max(0, value.nowMs - atMs), tenant, hub, seenBy };
    if (type === 'registry_up' || type === 'registry_down') {
      const detail = `${type.slice('registry_'.length)}: ${reason}`;
      return [{ ...common, type: 'registry', kind: 'registry', name: 'registry', detail }];
    }
    const [kind = ''] = roleNames([role]);
    const from = address === '' ? '' : ` from ${address}`;
    const at = address === '' ? '' : `${kind === 'hub' ? 'link to' : 'admin port at'} ${address}`;
    const detail = [hub === '' ? at : `session with ${hub}${from}`, reason].filter((part) => part !== '').join(': ');
    return [{ ...common, type, kind, name, detail }];
  });
}

/** Returns those of the last hour, the newest last, each once: several members tell of the same. */
export function eventsOf(seen: readonly Seen[]): EventView[] {
  const last = new Map<string, number>();
  const views: EventView[] = [];
  for (const { atMs, event: own, hub, ...event } of [...seen].sort((a, b) => b.agoMs - a.agoMs)) {
    const { agoMs } = event;
    if (!(agoMs <= ISTHMUS.eventsMs)) continue;
    const key = [event.type, event.kind, event.tenant, event.name, hub].join(' ');
    const told = last.get(key) ?? Number.POSITIVE_INFINITY;
    last.set(key, agoMs);
    if (told - agoMs < ISTHMUS.sameEventMs) continue;
    const name = own ?? `${event.name}.${atMs.toString(16)}`;
    views.push({ event: name, at: isoTime(atMs), ...event });
  }
  return views;
}

const PAINT = { came: 'good', drains: 'warning', went: 'bad', refused: 'warning', registry: 'warning' } as const;

const COLUMNS: readonly ListColumn<EventView>[] = [
  { name: 'last seen', of: ({ agoMs }) => age(agoMs), moves: true },
  { name: 'type', of: ({ type }, style) => style[PAINT[type]](type) },
  { name: 'object', least: 12, of: ({ kind, name }) => (kind === name ? name : `${kind}/${name}`) },
  { name: 'tenant', least: 8, drop: 2, of: ({ tenant }) => tenant },
  { name: 'detail', least: 28, folds: true, of: ({ detail }) => detail },
  { name: 'seen by', drop: 1, of: ({ seenBy }) => seenBy },
];

/** @param of the name of the only one whose events are chosen */
export function eventsText(events: readonly EventView[], style: Style, of?: string): string {
  if (events.length > 0) return rowsTable(COLUMNS, events, style);
  return of === undefined
    ? 'Nothing came, went or was refused in the last hour\n'
    : `Nothing is known of ${printable(of)} in the last hour\n`;
}
