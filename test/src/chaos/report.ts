import { availableParallelism } from 'node:os';
import { markdownTable, tableLine, writtenBy } from '../harness/docs-page.ts';
import type { Measure } from './row.ts';
import { DIALS_PER_SECOND, LONG_TUNNELS, type Outcome } from './run-row.ts';

const HEAD = [
  'fault',
  'dials',
  'failed',
  'by the other gateway',
  'worst dial',
  'tunnels cut',
  'normal again',
  'also',
  'holds',
];

/** The table in Markdown, a line for each row. */
export function table(outcomes: readonly Outcome[]): string {
  return markdownTable(
    HEAD,
    outcomes.map((outcome) => tableLine(cells(outcome))),
  );
}

function cells({ row, skipped, figures, measures, notes, normalMs, problems }: Outcome): string[] {
  const holds = skipped ? `not run: ${skipped}` : problems.length === 0 ? 'yes' : `**no**: ${problems.join('; ')}`;
  if (!figures) return [row.fault, ...Array(HEAD.length - 2).fill(''), inCell(holds)];
  const {
    tried,
    failed,
    inFlight,
    byOther,
    worst,
    cut,
    carried,
    shortCut,
    callersEnd,
    destinationsEnd,
    outlived,
    pause,
  } = figures;
  const besides = [
    ...(callersEnd === undefined ? [] : [`callers see the end within ${time(callersEnd)}`]),
    ...(destinationsEnd === undefined ? [] : [`destinations within ${time(destinationsEnd)}`]),
    ...(pause === undefined ? [] : [`${outlived} tunnels went on after at most ${time(pause)}`]),
    ...(shortCut > 0 ? [`${shortCut} short tunnels cut after the answer`] : []),
    ...measures.map(shown),
    ...notes,
  ];
  return [
    row.fault,
    String(tried),
    inFlight > 0 ? `${failed} (${inFlight} under way through the dead gateway)` : String(failed),
    String(byOther),
    time(worst),
    carried === cut ? String(cut) : `${cut} (${carried} through the failed part)`,
    normalMs === undefined ? 'never' : time(normalMs),
    besides.join('; '),
    inCell(holds),
  ];
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
  const date = new Date().toISOString().slice(0, 10);
  const made = `\`npm run chaos\`, ${date}, ${machine()}, ${DIALS_PER_SECOND} dials/s and ${LONG_TUNNELS} long tunnels.`;
  writtenBy('chaos', 'docs/RELIABILITY.md').write(`${made}\n\n${table(outcomes)}`);
}

function machine(): string {
  return `${availableParallelism()} cores, Node ${process.versions.node}`;
}
