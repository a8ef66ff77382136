import { ISTHMUS } from '../defaults.ts';
import { type ListColumn, rowsTable } from '../lists.ts';
import { age, millis, plural, type Style } from '../output.ts';
import { cut, table, wrapped } from '../table.ts';
import type { AnsweredDial, DialsOfMinute, ErrorView, Followed, Load, TenantDials } from './watch-dials.ts';

export interface Picture {
  readonly now: number;
  readonly members: readonly Followed[];
  readonly recent: DialsOfMinute;
  readonly unheard: number;
  readonly controls: Controls;
  /** Of the terminal, in characters. */
  readonly room: { readonly columns: number; readonly rows: number };
}

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
    ...dialLines(recent, { now, order: controls.dials, count: Math.max(ISTHMUS.watchItems, left) }, fit),
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

const LEVELS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;

/** From here on a line has room for the reason of a failure. */
const REASONS_FROM_WIDTH = 120;

/** Beside the bars of the seconds. */
const BESIDE_BARS = 36;

const MOST_SECONDS = 120;

/** The bars of the last seconds: as many as there is room for, and always the newest. */
function barLine(recent: DialsOfMinute, now: number, columns: number): string {
  const seconds = recent.perSecond(now, Math.max(10, Math.min(MOST_SECONDS, columns - BESIDE_BARS)));
  return `dials/s, last ${seconds.length} s  ${sparkline(seconds)}  at most ${Math.max(...seconds)}`;
}

export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values, 1);
  return values.map((value) => (value === 0 ? ' ' : LEVELS[Math.ceil((value / most) * LEVELS.length) - 1])).join('');
}

function lines(text: string): string[] {
  return text.trimEnd().split('\n');
}

/** A number of a member's load, unless it is lost. */
function loadColumn(name: string, of: (load: Load, member: Followed) => string, drop?: number): ListColumn<Followed> {
  const cell = (member: Followed) => (member.lost || !member.load ? '' : of(member.load, member));
  return { name, right: true, of: cell, ...(drop !== undefined && { drop }) };
}

const MEMBER_COLUMNS: readonly ListColumn<Followed>[] = [
  { name: 'member', least: 12, of: ({ member }) => member.id },
  { name: 'roles', drop: 1, of: ({ member }) => member.roles.join('+') },
  loadColumn('dials/s', ({ dialsPerSecond }) => dialsPerSecond.toFixed(1)),
  loadColumn('failed/s', ({ failuresPerSecond }) => failuresPerSecond.toFixed(1)),
  loadColumn('pending', ({ pending }) => String(pending), 3),
  loadColumn('parked', ({ parked }) => String(parked)),
  loadColumn('tunnels', ({ tunnels }) => String(tunnels)),
  loadColumn('sessions', ({ sessions }, { member }) => (member.roles.includes('hub') ? String(sessions) : ''), 2),
];

/** The members as a table, and below it why lost ones are lost. */
function memberLines(
  members: readonly Followed[],
  { now, order }: { readonly now: number; readonly order: Controls['members'] },
  style: Style,
): string[] {
  const state = ({ load, lost: why }: Followed) => {
    if (why) return style.bad(`lost ${age(now - why.since)}`);
    return load ? stateText(load, style) : 'asked';
  };
  const columns = [...MEMBER_COLUMNS, { name: 'state', of: state }];
  const lost = members.flatMap(({ member, lost: why }) => (why ? [`${member.id}: ${why.reason}`] : []));
  const reasons = lost
    .slice(0, ISTHMUS.watchReasons)
    .flatMap((text) => wrapped(`  ${text}`, style.columns, '  ').slice(0, LINES_PER_REASON));
  const more = lost.length > ISTHMUS.watchReasons ? [`  and ${lost.length - ISTHMUS.watchReasons} more`] : [];
  const told = [...reasons, ...more].map((line) => style.bad(cut(line, style.columns)));
  return [...lines(rowsTable(columns, inOrder(members, order), style)), ...told];
}

function stateText({ ready, admission = 'open' }: Load, style: Style): string {
  if (ready) return style.good('answers');
  return admission === 'open' ? style.bad('not ready') : style.warning(admission);
}

const WEIGHTS: Readonly<Record<Exclude<Controls['members'], 'name'>, (load: Load) => number>> = {
  dials: ({ dialsPerSecond }) => dialsPerSecond,
  failed: ({ failuresPerSecond }) => failuresPerSecond,
  tunnels: ({ tunnels }) => tunnels,
};

/** Members come by name. Other orders have the greatest first, and lost members before all. */
function inOrder(members: readonly Followed[], order: Controls['members']): readonly Followed[] {
  if (order === 'name') return members;
  const weight = ({ load, lost }: Followed) =>
    lost ? Number.POSITIVE_INFINITY : load ? WEIGHTS[order](load) : Number.NEGATIVE_INFINITY;
  return [...members].sort((a, b) => (weight(a) === weight(b) ? 0 : weight(b) - weight(a)));
}

const LINES_PER_REASON = 2;

function errorLines(errors: readonly ErrorView[], style: Style): string[] {
  if (errors.length === 0) return ['No dial failed in the last minute', ''];
  const roomy = style.columns >= REASONS_FROM_WIDTH;
  const rows = errors.slice(0, ISTHMUS.watchItems).map(({ code, count, last }) => {
    return [style.bad(String(count)), code, last.destination, ...(roomy ? [last.error?.text ?? ''] : [])];
  });
  const saying = roomy ? [{ name: 'saying', least: 20 }] : [];
  const [head = '', ...told] = lines(
    table([{ name: 'count', right: true }, 'error', { name: 'last to', least: 16, most: 32 }, ...saying], rows, style),
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

function dialLines(recent: DialsOfMinute, { now, order, count }: Listed, style: Style): string[] {
  const dials = order === 'slowest' ? recent.slowest(count) : recent.newest(count);
  if (dials.length === 0) return [];
  const columns: readonly ListColumn<AnsweredDial>[] = [
    { name: 'took', right: true, of: ({ ms }) => millis(ms) },
    { name: 'to', least: 15, most: 48, of: ({ destination }) => destination },
    { name: 'agent', least: 8, most: 32, of: ({ agent }) => agent },
    { name: 'hub', least: 6, drop: 6, of: ({ hub }) => hub },
    { name: 'attempts', right: true, drop: 5, of: ({ attempts }) => String(attempts) },
    { name: 'error', least: 18, of: ({ ok, error }) => (ok ? '' : style.bad(error?.code ?? 'failed')) },
    { name: 'ago', right: true, drop: 7, of: ({ started, ms }) => age(now - Date.parse(started) - ms) },
    { name: 'dial', drop: 8, of: ({ dial }) => dial },
    { name: 'tenant', least: 8, drop: 3, of: ({ tenant }) => tenant },
    { name: 'gateway', least: 8, drop: 2, of: ({ gateway }) => gateway },
    { name: 'caller', least: 12, drop: 1, of: ({ caller }) => caller },
  ];
  const title = order === 'slowest' ? 'Slowest of the last minute' : 'Newest';
  return [style.strong(title), ...lines(rowsTable(columns, dials, style)), ''];
}

const TENANT_COLUMNS: readonly ListColumn<TenantDials>[] = [
  { name: 'tenant', least: 12, of: ({ tenant }) => tenant },
  { name: 'dials', right: true, of: ({ dials }) => String(dials) },
  { name: 'failed', right: true, of: ({ failed }, style) => (failed > 0 ? style.bad(String(failed)) : '0') },
  { name: 'half within', right: true, of: ({ p50 }) => millis(p50) },
  { name: '99 % within', right: true, of: ({ p99 }) => millis(p99) },
];

function tenantLines(tenants: readonly TenantDials[], style: Style): string[] {
  if (tenants.length === 0) return [];
  const rows = lines(rowsTable(TENANT_COLUMNS, tenants.slice(0, ISTHMUS.watchItems), style));
  const more =
    tenants.length > ISTHMUS.watchItems ? [`and ${plural(tenants.length - ISTHMUS.watchItems, 'tenant')} more`] : [];
  return [style.strong('Tenants, in the last minute'), ...rows, ...more];
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
export function dialLine(dial: AnsweredDial): string {
  const through = dial.agent === '' ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const outcome = dial.ok ? 'established' : `failed: ${dial.error?.code}: ${dial.error?.text}`;
  const more = dial.attempts > 1 ? `, ${dial.attempts} attempts` : '';
  return `${dial.started} ${dial.gateway} ${dial.tenant} ${dial.destination}${through} ${millis(dial.ms)} ${outcome}${more}`;
}

/** The orders in which dials and members are listed. The first is the one at the start. */
const DIAL_ORDERS = ['slowest', 'newest'] as const;

const MEMBER_ORDERS = ['name', 'dials', 'failed', 'tunnels'] as const;

/** What an operator has set by keys. */
export interface Controls {
  readonly paused: boolean;
  readonly onlyFailed: boolean;
  /** Only dials that contain this text; empty for all. */
  readonly filter: string;
  /** The text of a filter that is being typed; unset while none is. */
  readonly typing?: string;
  readonly dials: (typeof DIAL_ORDERS)[number];
  readonly members: (typeof MEMBER_ORDERS)[number];
  readonly help: boolean;
}

export const AT_START: Controls = {
  paused: false,
  onlyFailed: false,
  filter: '',
  dials: 'slowest',
  members: 'name',
  help: false,
};

const ENTER = ['\r', '\n'];

const ESCAPE = '\u001b';

const BACK = ['\u007f', '\b'];

/** The keys that end the screen. Raw terminals pass Ctrl-C on as a character. */
const CTRL_C = '\u0003';

/** Returns what is set after a key, or undefined if the key ends the screen. */
export function pressed(controls: Controls, key: string): Controls | undefined {
  if (key === CTRL_C) return undefined;
  if (controls.typing !== undefined) return typed(controls, controls.typing, key);
  switch (key) {
    case 'q':
      return undefined;
    case 'p':
    case ' ':
      return { ...controls, paused: !controls.paused };
    case 'f':
      return { ...controls, onlyFailed: !controls.onlyFailed };
    case 's':
      return { ...controls, dials: after(DIAL_ORDERS, controls.dials) };
    case 'm':
      return { ...controls, members: after(MEMBER_ORDERS, controls.members) };
    case '/':
      return { ...controls, typing: controls.filter };
    case '?':
    case 'h':
      return { ...controls, help: !controls.help };
    case ESCAPE:
      return { ...controls, help: false, filter: '', onlyFailed: false };
    default:
      return controls;
  }
}

/** A key while a filter is being typed. The screen follows each of them. */
function typed({ typing: _, ...controls }: Controls, before: string, key: string): Controls {
  if (ENTER.includes(key)) return { ...controls, filter: before };
  if (key === ESCAPE) return { ...controls, filter: '' };
  const text = BACK.includes(key) ? before.slice(0, -1) : before + (/^[\x21-\x7e]$/.test(key) ? key : '');
  const typing = text.slice(0, ISTHMUS.watchFilterCharacters);
  return { ...controls, filter: typing, typing };
}

function after<T>(all: readonly T[], current: T): T {
  return all[(all.indexOf(current) + 1) % all.length] as T;
}

/** Returns a test of dials, or undefined if all are shown. */
export function chosen({ filter, onlyFailed }: Controls): ((dial: AnsweredDial) => boolean) | undefined {
  if (filter === '' && !onlyFailed) return undefined;
  const wanted = filter.toLowerCase();
  return (dial) => {
    if (onlyFailed && dial.ok) return false;
    const { destination, tenant, agent, hub, gateway, caller, error, dial: id } = dial;
    const texts = [destination, tenant, agent, hub, gateway, caller, error?.code ?? '', error?.text ?? '', id];
    return texts.some((text) => text.toLowerCase().includes(wanted));
  };
}

/** What a terminal sends for arrows and function keys (ECMA-48, section 5.4), so that their letters are no keys. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they begin with ESC.
const SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|O.)|./gsu;

/** Splits what a terminal has sent into keys. */
export function keysIn(input: string): string[] {
  return [...input.matchAll(SEQUENCE)].map(([key]) => key).filter((key) => key.length === 1);
}
