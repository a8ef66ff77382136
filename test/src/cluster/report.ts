import { availableParallelism } from 'node:os';
import { getOrPut } from '@isthmus/runtime';
import { markdownTable, tableLine, writtenBy } from '../harness/docs-page.ts';
import type { Outcome } from './faults/load.ts';
import { VERSION } from './settings.ts';
import { WAYS } from './way.ts';

const HEAD = ['how the API server dials, and when', 'what is done', 'what callers notice'];

/** From this on, in milliseconds, callers notice that a call takes long. */
const LONG_MS = 5000;

/**
 * The outcomes as a table in Markdown.
 * @param before a page that has such a table, whose rows of other ways stay
 * @param on the day of the run
 */
export function table(outcomes: readonly Outcome[], before = '', on = today()): string {
  const kept = rowsOf(before);
  const rows = Object.values(WAYS).flatMap((way) => {
    const fresh = outcomes.filter((each) => each.way === way);
    if (fresh.length === 0) return kept.get(way.name) ?? [];
    return gathered(fresh).map((each, index) =>
      tableLine([index === 0 ? `${way.name}, ${on}` : '', each.fault, inWords(each)]),
    );
  });
  return markdownTable(HEAD, rows);
}

/** What no caller noticed is one row. */
function gathered(outcomes: readonly Outcome[]): readonly Outcome[] {
  const unnoticed = outcomes.filter(({ figures: { failed, underWay, long, admissions } }) => {
    return failed + underWay + long.cut.length + admissions.failed.length + admissions.underWay === 0;
  });
  const [first] = unnoticed;
  if (!first) return outcomes;
  const calls = unnoticed.reduce((sum, { figures }) => sum + figures.calls, 0);
  const longest = Math.max(...unnoticed.map(({ figures }) => figures.longest));
  const fault = unnoticed.map((each) => each.fault).join('; ');
  return [
    { ...first, fault, figures: { ...first.figures, calls, longest } },
    ...outcomes.filter((each) => !unnoticed.includes(each)),
  ];
}

/** The rows of a page by their way, which only the first of them names, with the day of its run. */
function rowsOf(page: string): Map<string, string[]> {
  const rows = new Map<string, string[]>();
  let own: string[] | undefined;
  for (const row of page.split('\n')) {
    const way = Object.values(WAYS).find(({ name }) => row.startsWith(`| ${name}, `));
    if (way) own = getOrPut(rows, way.name, () => []);
    else if (!row.startsWith('|  | ')) own = undefined;
    own?.push(row);
  }
  return rows;
}

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

/** What callers met of a fault, in a line. */
export function inWords({ figures }: Outcome): string {
  const { calls, failed, underWay, longest, long, admissions } = figures;
  const besides = (struck: number) => (struck > 0 ? ` (and ${struck} under way)` : '');
  // If all are cut, so is each kind.
  const kinds = long.cut.length < long.calls ? `: ${counted(long.cut)}` : '';
  const noticed = [
    ...(failed + underWay > 0 ? [`${failed} of ${calls} calls fail${besides(underWay)}`] : []),
    ...(long.cut.length > 0 ? [`${long.cut.length} of ${long.calls} long calls cut${kinds}`] : []),
    ...(admissions.failed.length + admissions.underWay > 0
      ? [`${admissions.failed.length} of ${admissions.asked} admissions fail${besides(admissions.underWay)}`]
      : []),
    ...(longest < LONG_MS ? [] : [`a call takes ${(longest / 1000).toFixed(1)} s`]),
  ];
  return noticed.join('; ') || `nothing in ${calls} calls`;
}

/** Names each kind once, and how many there are of it: "3 execs, watch". */
function counted(kinds: readonly string[]): string {
  const of = (kind: string) => kinds.filter((each) => each === kind).length;
  return [...new Set(kinds)].map((kind) => (of(kind) > 1 ? `${of(kind)} ${kind}s` : kind)).join(', ');
}

/** Writes the outcomes of a run into the page for operators. */
export function writePage(outcomes: readonly Outcome[]): void {
  const { before, write } = writtenBy('cluster', 'docs/KUBERNETES.md');
  const made = `\`npm run cluster\`, Kubernetes ${VERSION}, ${availableParallelism()} cores.`;
  write(`${made}\n\n${table(outcomes, before)}`);
}
