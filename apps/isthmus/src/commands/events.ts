import { adminApi, namesOf } from '@isthmus/proto/admin';
import { Option } from 'commander';
import type { Call } from '../command.ts';
import { ISTHMUS } from '../defaults.ts';
import { type Kind, type ListColumn, listCommand, rowsTable } from '../lists.ts';
import { age, isoTime, plural, type Style } from '../output.ts';
import { sessionsOf } from '../plane/evidence.ts';
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
  /** Names the event where a later report of it has other times and names. */
  readonly event?: string;
};

interface Told {
  readonly status: adminApi.GetStatusResponse;
  readonly list: adminApi.ListMembersResponse;
  readonly refusals: readonly adminApi.Refusal[];
  readonly events: readonly adminApi.Event[];
}

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
    // A member of an earlier version does not keep events.
    const unlessDenied = <T>(answer: Promise<T>) => answer.catch((error) => denied(error));
    const [asked, { sessions, unanswered }] = await Promise.all([
      met.ask(async (admin, signal): Promise<Told> => {
        const [status, members, history, happened] = await Promise.all([
          admin.getStatus({}, { signal }),
          admin.listMembers({}, { signal }),
          unlessDenied(admin.getHistory({ tenant }, { signal })),
          unlessDenied(admin.listEvents({}, { signal })),
        ]);
        return { status, list: members, refusals: history?.refusals ?? [], events: happened?.events ?? [] };
      }),
      sessionsOf(met, tenant),
    ]);
    const came = sessions.map(({ agent: name, tenant: of, hub, remote, since, ageMs: agoMs }): Seen => {
      const detail = `session with ${hub}${remote === '' ? '' : ` from ${remote}`}`;
      return { atMs: Date.parse(since), agoMs, type: 'came', kind: 'agent', name, tenant: of, detail, seenBy: hub };
    });
    const all = eventsOf([...asked.answers.flatMap(seenBy), ...came]);
    const items = all
      .filter((event) => wanted === undefined || event.name === wanted)
      .filter((event) => tenant === '' || event.tenant === tenant);
    return {
      items,
      unanswered: asked.unanswered.length > 0 ? asked.unanswered : unanswered,
      text: (shown, style) => eventsText(shown, style, wanted),
    };
  },
};

export const events = listCommand(EVENTS, {
  summary: 'List what came, went, drained and was refused in the last hour',
  details:
    "From what members keep: their sessions, losses, refusals and last events, so a busy member's older events may be missing.",
  args: [],
  options: [new Option('--for <name>', 'only events of this agent, hub or gateway')],
  examples: [
    { line: 'events', does: 'the newest last' },
    { line: 'events --for agent-3', does: 'does it come and go?' },
    { line: 'events --field-selector type=went -w', does: 'who is lost from now on' },
  ],
});

function denied(error: unknown): undefined {
  if (/PERMISSION_DENIED|UNIMPLEMENTED/.test(String(error))) return undefined;
  throw error;
}

/** What one member saw, with how long ago by its own clock. */
export function seenBy(answer: Answer<Told>): Seen[] {
  const { nowMs } = answer.value.status;
  return seenAt(answer).map((seen) => ({ ...seen, agoMs: Math.max(0, nowMs - seen.atMs) }));
}

type SeenAt = Omit<Seen, 'agoMs'>;

function seenAt({ member: { id: seenBy }, value }: Answer<Told>): SeenAt[] {
  const { status, list: members, refusals, events } = value;
  const joined = members.members.map(({ memberId: name, roles, adminAddress, sinceMs }): SeenAt => {
    const kind = roleNames(roles)[0] ?? '';
    return {
      atMs: sinceMs,
      type: 'came',
      kind,
      name,
      tenant: '',
      detail: `started, admin port at ${adminAddress}`,
      seenBy,
    };
  });
  const lost = status.losses.map(({ role, tenant, id: name, hubId, remote, reason, left, atMs }): SeenAt => {
    const from = [hubId && `last at ${hubId}`, remote && `from ${remote}`].filter(Boolean).join(' ');
    const why = reason || (left ? 'it was stopped' : 'without a word');
    const kind = roleNames([role])[0] ?? '';
    const detail = from === '' ? why : `${why}, ${from}`;
    return { atMs, type: 'went', kind, name, tenant, detail, seenBy };
  });
  const refused = refusals.map(({ where, remote: name, reason, count, firstMs, lastMs }): SeenAt => {
    const detail = `at the port for ${where}: ${reason}${count > 1 ? ` (${plural(count, 'time')})` : ''}`;
    // The remote and the time are those of the last one.
    const event = `${seenBy}.${where}.${firstMs.toString(16)}`;
    return { event, atMs: lastMs, type: 'refused', kind: 'peer', name, tenant: '', detail, seenBy };
  });
  return [...joined, ...lost, ...refused, ...events.flatMap((event) => happenedAt(event, seenBy))];
}

const TYPES = namesOf(adminApi.Event_Type, 'TYPE');

/** An event that a member kept; none if a later version knows more types. */
function happenedAt(
  { type: told, role, tenant, id: name, hubId, address, reason, atMs }: adminApi.Event,
  seenBy: string,
): SeenAt[] {
  const type = TYPES[told];
  if (type === undefined) return [];
  if (type === 'registry_up' || type === 'registry_down') {
    const detail = `${type.slice('registry_'.length)}: ${reason}`;
    return [{ atMs, type: 'registry', kind: 'registry', name: 'registry', tenant, detail, seenBy }];
  }
  const [kind = ''] = roleNames([role]);
  const why = reason === '' ? '' : `: ${reason}`;
  const from = address === '' ? '' : ` from ${address}`;
  const detail = kind === 'hub' ? `link from ${seenBy} to ${address}${why}` : `session with ${hubId}${from}${why}`;
  return [{ atMs, type, kind, name, tenant, detail, seenBy }];
}

/** Returns those of the last hour, the newest last, each once: several members tell of the same. */
export function eventsOf(seen: readonly Seen[]): EventView[] {
  const last = new Map<string, number>();
  const views: EventView[] = [];
  for (const { atMs, event: own, ...event } of [...seen].sort((a, b) => b.agoMs - a.agoMs)) {
    const { agoMs } = event;
    if (!(agoMs <= ISTHMUS.eventsMs)) continue;
    // One event of an agent is told with its session's hub; a loss, which follows it, with none.
    const place = /^session with (\S+)/.exec(event.detail)?.[1] ?? '';
    const same = [event.type, event.kind, event.tenant, event.name];
    const keys = [...same, place].join(' ');
    const never = Number.POSITIVE_INFINITY;
    const told = Math.min(last.get(keys) ?? never, place === '' ? (last.get(same.join(' ')) ?? never) : never);
    last.set(keys, agoMs);
    last.set(same.join(' '), agoMs);
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
    : `Nothing is known of ${of} in the last hour\n`;
}
