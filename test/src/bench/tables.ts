import { markdownTable, tableLine, writtenBy } from '../harness/docs-page.ts';
import { short } from '../rig/figures.ts';
import { FAR, LINES, type Line, RESUME, RESUME_FAR, type Shown, STANDARD, TRACING } from './lines.ts';
import { type Book, contendersOf, figureOf, type Made } from './store.ts';

export type Row = readonly string[];

/** Contenders whose figures come first, as the bounds of what is possible. */
const BOUNDS = ['direct', 'relays-2', 'relays-3'];

const FRONTS = ['grpc-uds', 'connect-uds', 'connect-tcp-mtls'];
const BY_PLANEBENCH = ' (planebench)';

/** Returns a row for each figure of each line, with a column for each contender. */
export function figureTable(book: Book, lines: readonly Line[] = STANDARD): Row[] {
  return figuresOf(book, lines, inOrder(contendersOf(book, lines)));
}

function figuresOf(book: Book, lines: readonly Line[], columns: readonly string[]): Row[] {
  const rows = lines.flatMap(({ name, title, shows }) =>
    shows.map(({ figure, label }) => {
      const cells = columns.map((contender) => cell(figureOf(book, name, contender, figure), figure));
      return [title, label, ...cells];
    }),
  );
  return [['line', 'figure', ...columns], ...rows.filter((row) => row.slice(2).some((each) => each !== ''))];
}

type Pair = readonly [string, string];

/**
 * Returns ratios of our planes' figures to upstream's with the same front: as they are, and on another Node. Each
 * is by planebench if it has loaded both, and a range if several runs have it: a ratio holds only within its run. Lines that may break a plane are
 * left out: they say themselves whether they did.
 */
export function upstreamTable(books: readonly Book[]): Row[] {
  const names = [...new Set(books.flatMap((book) => contendersOf(book)))];
  const nodes = [...new Set(names.flatMap((name) => /^node\d+-(?!floor)/.exec(name)?.[0] ?? []))];
  const columns = [
    ...FRONTS.map((front) => [front, `anp-${front}`] as const),
    ...nodes.flatMap((node) => FRONTS.map((front) => [`${node}${front}`, `anp-${front}`] as const)),
  ]
    .map(([own, anp]) => ({
      head: own,
      // Of these, the first that has a figure counts.
      pairs: [BY_PLANEBENCH, ''].map((by) => [`${own}${by}`, `${anp}${by}`] as const).filter(isIn(names)),
    }))
    .filter(({ pairs }) => pairs.length > 0);
  const rows = STANDARD.filter(({ once }) => !once).flatMap(({ name, title, shows }) =>
    shows.map((shown) => {
      const cells = columns.map(({ pairs }) => {
        const found = books.flatMap((book) => firstRatio(book, name, shown.figure, pairs));
        return found.length === 0 ? '' : range(found);
      });
      return { cells, row: [title, shown.label, ...cells] };
    }),
  );
  const told = rows.filter(({ cells }) => cells.some((each) => each !== ''));
  return [['line', 'figure', ...columns.map(({ head }) => head)], ...told.map(({ row }) => row)];
}

function isIn(names: readonly string[]): (pair: Pair) => boolean {
  return (pair) => pair.every((name) => names.includes(name));
}

/** Returns the ratio of the first pair that has one, or nothing. */
function firstRatio(book: Book, line: string, figure: string, pairs: readonly Pair[]): number[] {
  return pairs.flatMap((pair) => ratio(book, line, figure, pair) ?? []).slice(0, 1);
}

function range(values: readonly number[]): string {
  const [least, most] = [short(Math.min(...values)), short(Math.max(...values))];
  return least === most ? least : `${least} to ${most}`;
}

function ratio(book: Book, line: string, figure: string, pair: Pair): number | undefined {
  const [one, other] = pair.map((contender) => figureOf(book, line, contender, figure));
  return one === undefined || !other ? undefined : one / other;
}

/** Returns ratios of planes with traces to one without: 1.000 is no cost at all. */
export function tracingTable(book: Book): Row[] {
  return besideTable(book, TRACING, 'traces-off');
}

/** Returns ratios of planes with a long way in them to that way alone: 1.000 is all that it allows. */
export function farTable(book: Book): Row[] {
  return besideTable(book, FAR, 'far-relay');
}

/** Returns ratios of planes whose tunnels can be resumed to planes whose tunnels cannot. */
export function resumeTables(book: Book): Row[][] {
  return [besideTable(book, RESUME, 'resume-off'), besideTable(book, RESUME_FAR, 'far-resume-off')];
}

/** Returns the figures of one contender, and the ratios of the others to them. */
function besideTable(book: Book, lines: readonly Line[], bound: string): Row[] {
  const names = contendersOf(book, lines).filter((name) => name !== bound);
  const rows = lines.flatMap(({ name: line, title, shows }) =>
    shows.map(({ figure, label }) => {
      const own = figureOf(book, line, bound, figure);
      const cells = names.map((name) => {
        const value = figureOf(book, line, name, figure);
        return value === undefined || !own ? '' : (value / own).toFixed(3);
      });
      return [title, label, cell(own), ...cells];
    }),
  );
  const head = ['line', 'figure', bound, ...names.map((name) => `${name} / ${bound}`)];
  return [head, ...rows.filter((row) => row.slice(3).some((each) => each !== ''))];
}

/** Returns the ratios of the second book's figures to the first's: 1.00 is the same. */
export function comparison(before: Book, after: Book): Row[] {
  const columns = inOrder(contendersOf(before)).filter((each) => contendersOf(after).includes(each));
  const rows = LINES.flatMap((line) => line.shows.flatMap((shown) => compared(before, after, columns, line, shown)));
  return [['line', 'figure', 'contender', 'before', 'after', 'ratio', ''], ...rows];
}

function compared(before: Book, after: Book, columns: readonly string[], { name, title }: Line, shown: Shown): Row[] {
  return columns.flatMap((contender) => {
    const [a, b] = [before, after].map((book) => figureOf(book, name, contender, shown.figure));
    if (a === undefined || b === undefined) return [];
    const change = a === 0 ? undefined : b / a;
    return [[title, shown.label, contender, cell(a), cell(b), cell(change), verdict(change, shown)]];
  });
}

/** Two rounds on a busy machine may differ by this fraction. */
const NOISE = 0.1;

function verdict(ratio: number | undefined, { better }: Shown): string {
  if (ratio === undefined || Math.abs(ratio - 1) <= NOISE) return '';
  return ratio > 1 === (better === 'more') ? 'better' : 'worse';
}

function cell(value: number | undefined, figure = ''): string {
  if (value === undefined) return '';
  return figure === 'recovery_ms' && value < 0 ? 'never' : short(value);
}

function inOrder(contenders: readonly string[]): string[] {
  const bounds = BOUNDS.filter((each) => contenders.includes(each));
  return [...bounds, ...contenders.filter((each) => !BOUNDS.includes(each))];
}

export function asText(rows: readonly Row[]): string {
  const [head = []] = rows;
  const widths = head.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((each, column) => each.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** Writes the ratios of several runs to ANP's into docs/PERFORMANCE.md, as ranges. */
export function writePage(books: readonly [Book, ...Book[]]): void {
  const [head = [], ...rows] = upstreamTable(books);
  const made = books.map((book) => `- ${madeWith(book.made)}`).join('\n');
  writtenBy('bench', 'docs/PERFORMANCE.md').write(`${markdownTable(head, rows.map(tableLine))}\n\n${made}`);
}

/** Says on which machine a run was made, and how busy that was. */
export function madeWith({ at, node, cores, processor, commit, windowMs, rounds, busy }: Made): string {
  const when = `${at.slice(0, 10)}, commit ${commit}, Node ${node}, ${cores} cores (${processor})`;
  const others = busy === undefined ? '' : `, of which others used ${Math.round(busy * 100)} % just before`;
  const how = `${windowMs / 1000} s a measurement, ${rounds === 1 ? 'once' : `median of ${rounds}`}`;
  return `\`npm run bench\`, ${when}${others}; ${how}.`;
}
