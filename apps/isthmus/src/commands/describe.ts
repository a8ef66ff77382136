import { Argument } from 'commander';
import { type Call, command, naming } from '../command.ts';
import { type Kind, missing } from '../lists.ts';
import { age, bytes, type Style, statusOf, unansweredText, usage } from '../output.ts';
import { textOf } from '../paths.ts';
import { table } from '../table.ts';
import { AGENTS, SESSIONS } from './agents.ts';
import { EVENTS, type EventView, eventsText } from './events.ts';
import { HUBS } from './hubs.ts';
import { MEMBERS } from './status.ts';
import { TENANTS } from './tenants.ts';
import { TUNNELS, type TunnelView, tunnelsText } from './tunnels.ts';

const KINDS: readonly Kind<object>[] = [AGENTS, SESSIONS, HUBS, MEMBERS, TENANTS, TUNNELS] as unknown as Kind<object>[];

/** The kinds that a tunnel names, by its fields. */
const OF_TUNNELS = ['agent', 'session', 'hub', 'tenant'] as const;

export const describe = command({
  name: 'describe',
  summary: 'Show all about one agent, session, hub, member, tenant or tunnel: its fields, tunnels and events',
  args: [
    new Argument('<kind>', `one of the kinds, or KIND/NAME as -o name prints it`)
      .choices(KINDS.map(({ one }) => one))
      .argParser((text: string) => text),
    naming('agents', new Argument('[name]', 'its name')),
  ],
  examples: [
    { line: 'describe agent agent-1', does: 'what it serves, carries, and when it came and went' },
    { line: 'describe tenant/acme', does: 'its limits, callers, tunnels and events' },
  ],
  async run(call: Call) {
    const { kind, name } = wanted(call.args);
    const [{ items, unanswered }, tunnels, events] = await Promise.all([
      kind.ask(call),
      TUNNELS.ask(call),
      EVENTS.ask(call),
    ]);
    const found = items.filter((item) => kind.names(item).includes(name));
    if (found.length === 0) throw missing(kind.one, [name], unanswered);
    const field = OF_TUNNELS.find((each) => each === kind.one);
    const views = found.map((object) => ({
      [kind.one]: object,
      tunnels: field ? tunnels.items.filter((each) => each[field] === name) : [],
      events: events.items.filter((each) =>
        kind.one === 'tenant' ? each.tenant === name : kind.names(object).includes(each.name),
      ),
    }));
    call.output.show(
      views.length === 1 ? (views[0] as object) : { items: views },
      (_, style) => views.map((view) => described(kind, view, style)).join('\n') + unansweredText(unanswered),
    );
    return statusOf(false, unanswered);
  },
});

function wanted([written = '', second]: Call['args']): { readonly kind: Kind<object>; readonly name: string } {
  const [word = '', ...rest] = written.split('/');
  const name = second ?? rest.join('/');
  const kind = KINDS.find(({ one, name: all }) => one === word || all === word);
  const known = KINDS.map(({ one }) => one).join(', ');
  if (!kind) throw usage(`there is no kind ${JSON.stringify(word)}; the kinds are ${known}`);
  if (name === '') throw usage(`name the ${kind.one}: isthmus describe ${kind.one} NAME`);
  return { kind, name };
}

interface Described {
  readonly tunnels: readonly TunnelView[];
  readonly events: readonly EventView[];
}

function described(kind: Kind<object>, view: Described & Readonly<Record<string, unknown>>, style: Style): string {
  const fields = fieldsText(view[kind.one] as object, style);
  const listed = view.tunnels.length > 0 ? `\nTunnels:\n${tunnelsText(view.tunnels, style)}` : '';
  return `${fields}${listed}\nEvents:\n${eventsText(view.events, style)}`;
}

/** Prints fields as `Name:  value`; lists of objects as tables below. */
export function fieldsText(object: object, style: Style): string {
  const lines: [string, string][] = [];
  const tables: string[] = [];
  for (const [field, value] of Object.entries(object)) {
    const title = titleOf(field);
    const isTable = Array.isArray(value) && value.some((each) => typeof each === 'object');
    if (isTable) tables.push(`${title}:\n${objectsTable(value as object[], style)}`);
    else
      for (const [nth, each] of [value].flat().entries())
        lines.push([nth === 0 ? `${title}:` : '', valueText(field, each)]);
  }
  const width = Math.max(0, ...lines.map(([name]) => name.length)) + 2;
  return [
    ...lines.map(([name, value]) => `${name.padEnd(width)}${value}\n`),
    ...tables.map((each) => `\n${each}`),
  ].join('');
}

function objectsTable(objects: readonly object[], style: Style): string {
  const fields = [...new Set(objects.flatMap((each) => Object.keys(each)))];
  const rows = objects.map((each) =>
    fields.map((field) => valueText(field, (each as Record<string, unknown>)[field] ?? '')),
  );
  return table(
    fields.map((field) => titleOf(field)),
    rows,
    { ...style, wide: true },
  );
}

/** `ageMs` is `Age`, `dialsPerSecond` is `Dials per second`. */
function titleOf(field: string): string {
  const words = field.replace(/Ms$/, '').replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function valueText(field: string, value: unknown): string {
  if (typeof value === 'number' && /Ms$/.test(field)) return age(value);
  if (typeof value === 'number' && /^bytes|Bytes$/.test(field) && !/PerSecond/.test(field)) return bytes(value);
  if (Array.isArray(value) && value.every((each) => typeof each !== 'object')) return value.join(',');
  return value === '' ? '-' : typeof value === 'number' ? String(Math.round(value * 100) / 100) : textOf(value);
}
