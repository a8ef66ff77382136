import { cut, wrapped } from '../output/fit.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { age, millis, plural } from '../output/units.ts';
import type { Controls } from './controls.ts';
import type { DialView } from './dial.ts';
import type { Followed } from './follow.ts';
import { memberLines } from './members.ts';
import type { ErrorView, RecentDials, TenantView } from './recent.ts';

export interface Picture {
  readonly now: number;
  readonly members: readonly Followed[];
  readonly recent: RecentDials;
  readonly unheard: number;
  readonly controls: Controls;
  /** Of the terminal, in characters. */
  readonly room: { readonly columns: number; readonly rows: number };
}

const LEVELS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;

/** How many errors and tenants to show, and how many dials at least. */
const SHOWN_ITEMS = 5;

/** From here on a line has room for the reason of a failure. */
const REASONS_FROM_WIDTH = 120;

/** Beside the bars of the seconds. */
const BESIDE_BARS = 36;
const MOST_SECONDS = 120;

/** Returns the lines of the live screen, the most important first, because a low terminal cuts off the end. */
export function picture({ now, members, recent, unheard, controls, room }: Picture, style: Style): string[] {
  const { columns, rows } = room;
  const fit: Style = { ...style, columns, wide: false };
  const above = [
    ...headLines({ now, members, recent, unheard }, fit),
    '',
    barLine(recent, now, columns),
    '',
    ...memberLines(members, { now, order: controls.members }, fit),
    '',
    ...errorLines(recent.errors(), fit),
  ];
  const below = tenantLines(recent.tenants(), fit);
  // Its heading, its columns, a gap and the footer.
  const left = rows - above.length - below.length - 4;
  return [
    ...above,
    ...dialLines(recent, { now, order: controls.dials, count: Math.max(SHOWN_ITEMS, left) }, fit),
    ...below,
  ];
}

type Head = Pick<Picture, 'now' | 'members' | 'recent' | 'unheard'>;

function headLines({ now, members, recent, unheard }: Head, style: Style): string[] {
  const rates = recent.rates(now);
  const lost = members.filter((member) => member.lost);
  const carried = members.filter(({ member }) => member.roles.includes('gateway'));
  const tunnels = carried.reduce((sum, { load }) => sum + (load?.tunnels ?? 0), 0);
  const heads = [
    `${new Date(now).toISOString().slice(11, 19)}Z`,
    plural(members.length, 'member'),
    lost.length > 0 ? style.bad(`${lost.length} lost`) : '',
    style.strong(`${rates.dials.toFixed(1)} dials/s`),
    rates.failed > 0 ? style.bad(`${rates.failed.toFixed(1)} failed/s`) : '0.0 failed/s',
    plural(tunnels, 'tunnel'),
  ];
  const missed = `${unheard} dials missed: this machine reads too slowly`;
  const line = cut(heads.filter((head) => head !== '').join('  '), style.columns);
  return unheard > 0 ? [line, style.warning(cut(missed, style.columns))] : [line];
}

/** The bars of the last seconds: as many as there is room for, and always the newest. */
function barLine(recent: RecentDials, now: number, columns: number): string {
  const seconds = recent.perSecond(now, Math.max(10, Math.min(MOST_SECONDS, columns - BESIDE_BARS)));
  return `dials/s, last ${seconds.length} s  ${sparkline(seconds)}  at most ${Math.max(...seconds)}`;
}

export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values, 1);
  return values.map((value) => (value === 0 ? ' ' : LEVELS[Math.ceil((value / most) * LEVELS.length) - 1])).join('');
}

const right = (name: string, more: object = {}) => ({ name, right: true, ...more }) as const;

function lines(text: string): string[] {
  return text.trimEnd().split('\n');
}

function errorLines(errors: readonly ErrorView[], style: Style): string[] {
  if (errors.length === 0) return ['No dial failed in the last minute', ''];
  const roomy = style.columns >= REASONS_FROM_WIDTH;
  const rows = errors.slice(0, SHOWN_ITEMS).map(({ code, count, last }) => {
    return [style.bad(String(count)), code, last.destination, ...(roomy ? [last.error?.text ?? ''] : [])];
  });
  const saying = roomy ? [{ name: 'saying', least: 20 }] : [];
  const [head = '', ...told] = lines(
    table([right('count'), 'error', { name: 'last to', least: 16, most: 32 }, ...saying], rows, style),
  );
  // A narrow screen has the reason on lines of its own: it is what an operator looks for.
  const reasons = errors.map(({ last }) =>
    wrapped(`       ${last.error?.text ?? ''}`, style.columns, '       ').slice(0, 2),
  );
  const all = told.flatMap((line, index) => (roomy ? [line] : [line, ...(reasons[index] ?? []).map(fit(style))]));
  return [style.strong('Failed in the last minute'), head, ...all, ''];
}

function fit({ columns, faint }: Style) {
  return (line: string) => faint(cut(line, columns));
}

interface Listed {
  readonly now: number;
  readonly order: Controls['dials'];
  readonly count: number;
}

function dialLines(recent: RecentDials, { now, order, count }: Listed, style: Style): string[] {
  const dials = order === 'slowest' ? recent.slowest(count) : recent.newest(count);
  if (dials.length === 0) return [];
  const rows = dials.map((dial) => [
    millis(dial.ms),
    dial.destination,
    dial.agent,
    dial.hub,
    String(dial.attempts),
    dial.ok ? '' : style.bad(dial.error?.code ?? 'failed'),
    age(now - Date.parse(dial.started) - dial.ms),
    dial.dial,
    dial.tenant,
    dial.gateway,
    dial.caller,
  ]);
  const columns = [
    right('took'),
    { name: 'to', least: 15, most: 48 },
    { name: 'agent', least: 8, most: 32 },
    { name: 'hub', least: 6, drop: 6 },
    right('attempts', { drop: 5 }),
    { name: 'error', least: 18 },
    right('ago', { drop: 7 }),
    { name: 'dial', drop: 8 },
    { name: 'tenant', least: 8, drop: 3 },
    { name: 'gateway', least: 8, drop: 2 },
    { name: 'caller', least: 12, drop: 1 },
  ];
  const title = order === 'slowest' ? 'Slowest of the last minute' : 'Newest';
  return [style.strong(title), ...lines(table(columns, rows, style)), ''];
}

function tenantLines(tenants: readonly TenantView[], style: Style): string[] {
  if (tenants.length === 0) return [];
  const rows = tenants
    .slice(0, SHOWN_ITEMS)
    .map(({ tenant, dials, failed, p50, p99 }) => [
      tenant,
      String(dials),
      failed > 0 ? style.bad(String(failed)) : '0',
      millis(p50),
      millis(p99),
    ]);
  const more = tenants.length > SHOWN_ITEMS ? [`and ${plural(tenants.length - SHOWN_ITEMS, 'tenant')} more`] : [];
  const columns = [
    { name: 'tenant', least: 12 },
    ...['dials', 'failed', 'half within', '99 % within'].map((name) => right(name)),
  ];
  return [style.strong('Tenants, in the last minute'), ...lines(table(columns, rows, style)), ...more];
}

/** The last line of the screen: what the keys do now, or the filter that is being typed. */
export function footer(controls: Controls, { columns }: { readonly columns: number }, style: Style): string {
  const { typing, filter, paused, onlyFailed, dials, members } = controls;
  if (typing !== undefined) return cut(`Only dials with: ${typing}_   Enter keeps it, Esc shows all`, columns);
  const set = [paused && 'PAUSED', onlyFailed && 'only failed', filter !== '' && `only with ${filter}`].filter(Boolean);
  const keys = `q quit  p pause  / filter  f failed  s ${dials}  m by ${members}  ? help`;
  const head = set.length > 0 ? `${style.warning(set.join(', '))}   ` : '';
  return cut(`${head}${style.faint(keys)}`, columns);
}

export const HELP: readonly string[] = [
  'Keys',
  '',
  '  q, Ctrl-C   quit',
  '  p, space    pause, and go on',
  '  /           only dials with a text in their destination, tenant, agent, hub,',
  '              gateway, caller, error or id',
  '  f           only failed dials, or all',
  '  s           list the slowest dials, or the newest',
  '  m           order members by name, dials/s, failed/s or tunnels',
  '  Esc         show everything again',
  '  ?, h        this page, and back',
];

/** Formats one dial, for output that is not redrawn. */
export function dialLine(dial: DialView): string {
  const through = dial.agent === '' ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const outcome = dial.ok ? 'established' : `failed: ${dial.error?.code}: ${dial.error?.text}`;
  const more = dial.attempts > 1 ? `, ${dial.attempts} attempts` : '';
  return `${dial.started} ${dial.gateway} ${dial.tenant} ${dial.destination}${through} ${millis(dial.ms)} ${outcome}${more}`;
}
