import { cut, wrapped } from '../output/fit.ts';
import type { Style } from '../output/style.ts';
import { table } from '../output/table.ts';
import { age } from '../output/units.ts';
import type { Controls } from './controls.ts';
import type { Followed, Load } from './follow.ts';

/** How many reasons of lost members to show, and on how many lines each. */
const MOST_REASONS = 3;
const LINES_PER_REASON = 2;

const right = (name: string, drop?: number) => ({ name, right: true, ...(drop !== undefined && { drop }) }) as const;

const COLUMNS = [
  { name: 'member', least: 12 },
  { name: 'roles', drop: 1 },
  right('dials/s'),
  right('failed/s'),
  right('pending', 3),
  right('parked'),
  right('tunnels'),
  right('sessions', 2),
  'state',
];

/** The members as a table, and below it why lost ones are lost. */
export function memberLines(
  members: readonly Followed[],
  { now, order }: { readonly now: number; readonly order: Controls['members'] },
  style: Style,
): string[] {
  const rows = inOrder(members, order).map(({ member, load, lost }) => {
    const numbers = lost || !load ? ['', '', '', '', '', ''] : loadCells(load, member.roles.includes('hub'));
    const state = lost ? style.bad(`lost ${age(now - lost.since)}`) : load ? stateText(load, style) : 'asked';
    return [member.id, member.roles.join('+'), ...numbers, state];
  });
  const lost = members.flatMap(({ member, lost: why }) => (why ? [`${member.id}: ${why.reason}`] : []));
  const reasons = lost
    .slice(0, MOST_REASONS)
    .flatMap((text) => wrapped(`  ${text}`, style.columns, '  ').slice(0, LINES_PER_REASON));
  const more = lost.length > MOST_REASONS ? [`  and ${lost.length - MOST_REASONS} more`] : [];
  const told = [...reasons, ...more].map((line) => style.bad(cut(line, style.columns)));
  return [...table(COLUMNS, rows, style).trimEnd().split('\n'), ...told];
}

function stateText({ ready, admission = 'open' }: Load, style: Style): string {
  if (ready) return style.good('answers');
  return admission === 'open' ? style.bad('not ready') : style.warning(admission);
}

function loadCells({ dialsPerSecond, failuresPerSecond, ...load }: Load, isHub: boolean): string[] {
  const { pending, parked, tunnels, sessions } = load;
  const rates = [dialsPerSecond.toFixed(1), failuresPerSecond.toFixed(1)];
  return [...rates, ...[pending, parked, tunnels].map(String), isHub ? String(sessions) : ''];
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
