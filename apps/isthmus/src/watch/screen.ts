import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { age, millis, plural, shortened } from '../output/units.ts';
import type { DialView } from './dial.ts';
import type { Followed } from './follow.ts';
import type { ErrorView, RecentDials, TenantView } from './recent.ts';

export interface Picture {
  readonly now: number;
  readonly members: readonly Followed[];
  readonly recent: RecentDials;
  readonly unheard: number;
}

const LEVELS = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;

/** How many of the slowest dials, errors and tenants to show. */
const SHOWN = 5;

/** Returns the lines of the live screen, the most important first, because a low terminal cuts off the end. */
export function picture({ now, members, recent, unheard }: Picture, style: Style): string[] {
  const rates = recent.rates(now);
  const seconds = recent.perSecond(now);
  const lost = members.filter((member) => member.lost);
  const carried = members.filter(({ member }) => member.roles.includes('gateway'));
  const tunnels = carried.reduce((sum, { load }) => sum + (load?.tunnels ?? 0), 0);
  const heads = [
    plural(members.length, 'member'),
    lost.length > 0 ? style.bad(`${lost.length} lost`) : '',
    style.strong(`${rates.dials.toFixed(1)} dials/s`),
    rates.failed > 0 ? style.bad(`${rates.failed.toFixed(1)} failed/s`) : '0.0 failed/s',
    plural(tunnels, 'tunnel'),
    unheard > 0 ? style.warning(`${unheard} dials missed: this machine reads too slowly`) : '',
  ];
  return [
    `${new Date(now).toISOString().slice(11, 19)}Z  ${heads.filter((head) => head !== '').join('   ')}`,
    '',
    `dials/s of the last minute  ${sparkline(seconds)}  at most ${Math.max(...seconds)}`,
    '',
    ...memberLines(members, now, style),
    '',
    ...errorLines(recent.errors(), style),
    ...slowestLines(recent.slowest(SHOWN), style),
    ...tenantLines(recent.tenants(), style),
  ];
}

export function sparkline(values: readonly number[]): string {
  const most = Math.max(...values, 1);
  return values.map((value) => (value === 0 ? ' ' : LEVELS[Math.ceil((value / most) * LEVELS.length) - 1])).join('');
}

const right = (name: string) => ({ name, right: true }) as const;

function lines(text: string): string[] {
  return text.trimEnd().split('\n');
}

function memberLines(members: readonly Followed[], now: number, style: Style): string[] {
  const rows = members.map(({ member, load, lost }) => {
    const state = lost
      ? style.bad(`lost for ${age(now - lost.since)}: ${shortened(lost.reason, 40)}`)
      : load
        ? style.good('answers')
        : 'asked';
    const numbers = lost || !load ? ['', '', '', '', '', ''] : loadCells(load);
    return [member.id, member.roles.join('+'), ...numbers, state];
  });
  const columns = ['dials/s', 'failed/s', 'pending', 'parked', 'tunnels', 'sessions'].map(right);
  return lines(table(['member', 'roles', ...columns, 'state'], rows));
}

function loadCells(load: NonNullable<Followed['load']>): string[] {
  const { dialsPerSecond, failuresPerSecond, pending, parked, tunnels, sessions } = load;
  return [dialsPerSecond.toFixed(1), failuresPerSecond.toFixed(1), ...[pending, parked, tunnels, sessions].map(String)];
}

function errorLines(errors: readonly ErrorView[], style: Style): string[] {
  if (errors.length === 0) return ['No dial failed in the last minute', ''];
  const rows = errors.slice(0, SHOWN).map(({ code, count, last }) => {
    return [style.bad(String(count)), code, last.destination, shortened(last.error?.text ?? '', 60)];
  });
  return [
    style.strong('Failed in the last minute'),
    ...lines(table([right('count'), 'error', 'last to', 'saying'], rows)),
    '',
  ];
}

function slowestLines(slowest: readonly DialView[], style: Style): string[] {
  if (slowest.length === 0) return [];
  const rows = slowest.map((dial) => [
    millis(dial.ms),
    dial.destination,
    dial.agent,
    dial.hub,
    String(dial.attempts),
    dial.ok ? '' : style.bad(dial.error?.code ?? 'failed'),
    dial.dial,
  ]);
  const columns = [right('took'), 'to', 'agent', 'hub', right('attempts'), 'error', 'dial'];
  return [style.strong('Slowest of the last minute'), ...lines(table(columns, rows)), ''];
}

function tenantLines(tenants: readonly TenantView[], style: Style): string[] {
  if (tenants.length === 0) return [];
  const rows = tenants
    .slice(0, SHOWN)
    .map(({ tenant, dials, failed, p50, p99 }) => [
      tenant,
      String(dials),
      failed > 0 ? style.bad(String(failed)) : '0',
      millis(p50),
      millis(p99),
    ]);
  const more = tenants.length > SHOWN ? [`and ${plural(tenants.length - SHOWN, 'tenant')} more`] : [];
  const columns = ['tenant', ...['dials', 'failed', 'half within', '99 % within'].map(right)];
  return [style.strong('Tenants, in the last minute'), ...lines(table(columns, rows)), ...more];
}

/** Formats one dial, for output that is not redrawn. */
export function dialLine(dial: DialView): string {
  const through = dial.agent === '' ? '' : ` through ${dial.agent} at ${dial.hub}`;
  const outcome = dial.ok ? 'established' : `failed: ${dial.error?.code}: ${dial.error?.text}`;
  const more = dial.attempts > 1 ? `, ${dial.attempts} attempts` : '';
  return `${dial.started} ${dial.gateway} ${dial.tenant} ${dial.destination}${through} ${millis(dial.ms)} ${outcome}${more}`;
}
