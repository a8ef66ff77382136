import { markdownTable, writtenBy } from '../harness/docs-page.ts';
import { madeHere, madeWith } from '../rig/page.ts';
import type { Measure } from './row.ts';
import { DIALS_PER_SECOND, LONG_TUNNELS, type Outcome } from './run-row.ts';

const HEAD = ['fault, and what else was noticed', 'lost', 'worst dial'];

/** Sooner than this, all is as before, and no news. */
const AT_ONCE_MS = 1000;

/**
 * The table in Markdown, a line for each row.
 * @param within whether it has what kept to its limits too
 */
export function table(outcomes: readonly Outcome[], within: boolean): string {
  return markdownTable(
    HEAD,
    outcomes.map((outcome) => cells(outcome, within)),
  );
}

function cells({ row, skipped, figures, measures, notes, normalMs, problems }: Outcome, within: boolean): string[] {
  const missed = problems.length === 0 ? [] : [inCell(`**limit missed**: ${problems.join('; ')}`)];
  if (!figures) return [titled(row.fault, skipped ? [inCell(`not run: ${skipped}`)] : missed), '', ''];
  const { failed, inFlight, worst, cut, carried, shortCut, callersEnd, destinationsEnd, outlived, pause } = figures;
  const lost = [...some(failed, 'dials', failed - inFlight), ...some(cut, 'tunnels', cut - carried)];
  const measured = [
    ...(callersEnd === undefined ? [] : [`callers see the end within ${time(callersEnd)}`]),
    ...(destinationsEnd === undefined ? [] : [`destinations within ${time(destinationsEnd)}`]),
    ...(outlived > 0 ? [`${outlived} tunnels went on`] : []),
    ...(shortCut > 0 ? [`${shortCut} short tunnels cut after the answer`] : []),
    ...measures.map(shown),
  ];
  const besides = [
    ...(within ? measured : []),
    ...(pause === undefined || pause < AT_ONCE_MS ? [] : [`tunnels pause for ${time(pause)}`]),
    ...notes,
    ...(normalMs !== undefined && normalMs < AT_ONCE_MS
      ? []
      : [normalMs === undefined ? 'never normal again' : `normal again after ${time(normalMs)}`]),
    ...missed,
  ];
  return [titled(row.fault, besides), lost.join(', ') || 'nothing', time(worst)];
}

/** @param others how many of them no dead process carried */
function some(count: number, what: string, others: number): string[] {
  return count === 0 ? [] : [`${count} ${what}${others > 0 ? ` (**${others} of no dead process**)` : ''}`];
}

function titled(fault: string, besides: readonly string[]): string {
  return besides.length === 0 ? fault : `${fault}: ${besides.join('; ')}`;
}

function shown({ name, value, unit }: Measure): string {
  if (unit === 'ms') return `${name} ${time(value)}`;
  return `${name} ${Math.round(value * 10) / 10}${unit && ` ${unit}`}`;
}

function time(ms: number): string {
  if (!Number.isFinite(ms)) return 'never';
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function inCell(text: string): string {
  return text.replaceAll('\n', ' ').slice(0, 600);
}

/** Writes a run of all rows into the page, with how it was made. */
export function writePage(outcomes: readonly Outcome[]): void {
  const made = madeWith('npm run chaos', madeHere(), `, ${DIALS_PER_SECOND} dials/s and ${LONG_TUNNELS} long tunnels`);
  writtenBy('chaos', 'docs/RELIABILITY.md').write(`${made}\n\n${table(outcomes, false)}`);
}
