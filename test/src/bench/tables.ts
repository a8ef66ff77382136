import { markdownTable, writtenBy } from '../harness/docs-page.ts';
import { short } from '../rig/figures.ts';
import { madeWith } from '../rig/page.ts';
import { LINES, type Line, type Shown } from './lines.ts';
import { type Book, contendersOf, figureOf, type Made } from './store.ts';

export type Row = readonly string[];

const FRONTS = ['grpc-uds', 'connect-uds', 'connect-tcp-mtls'];
const BY_PLANEBENCH = ' (planebench)';

/** Returns a row for each figure of each line, with a column for each contender. */
export function figureTable(book: Book, lines: readonly Line[] = LINES): Row[] {
  const columns = contendersOf(book);
  const rows = lines.flatMap(({ name, title, shows }) =>
    shows.map(({ figure, label }) => {
      const cells = columns.map((contender) => cell(figureOf(book, name, contender, figure)));
      return [title, label, ...cells];
    }),
  );
  return [['line', 'figure', ...columns], ...rows.filter((row) => row.slice(2).some((each) => each !== ''))];
}

type Pair = readonly [string, string];

/**
 * Returns ratios of our planes' figures to upstream's with the same front, also on another Node. Each is by planebench if it has loaded both, and a range if several runs have it: a ratio holds only within its run. Lines that may break a plane are
 * left out: they say themselves whether they did.
 */
export function upstreamTable(books: readonly Book[]): Row[] {
  const names = [...new Set(books.flatMap((book) => contendersOf(book)))];
  const nodes = ['', ...new Set(names.flatMap((name) => /^node\d+-(?!floor)/.exec(name)?.[0] ?? []))];
  const columns = nodes
    .flatMap((node) => FRONTS.map((front) => [`${node}${front}`, `anp-${front}`] as const))
    .map(([head, anp]) => ({
      head,
      // Of these, the first that has a figure counts.
      pairs: [BY_PLANEBENCH, ''].map((by) => [`${head}${by}`, `${anp}${by}`] as const).filter(isIn(names)),
    }))
    .filter(({ pairs }) => pairs.length > 0);
  const rows = LINES.filter(({ once }) => !once).flatMap(({ name, title, shows }) =>
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
  return least === most ? least : `${least}–${most}`;
}

function ratio(book: Book, line: string, figure: string, pair: Pair): number | undefined {
  const [one, other] = pair.map((contender) => figureOf(book, line, contender, figure));
  return one === undefined || !other ? undefined : one / other;
}

/** Returns the ratios of the second book's figures to the first's: 1.00 is the same. */
export function comparison(before: Book, after: Book): Row[] {
  const columns = contendersOf(before).filter((each) => contendersOf(after).includes(each));
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

function cell(value: number | undefined): string {
  return value === undefined ? '' : short(value);
}

/** Writes the ratios of several runs to ANP's into docs/PERFORMANCE.md, as ranges. */
export function writePage(books: readonly [Book, ...Book[]]): void {
  const [head = [], ...rows] = upstreamTable(books);
  const made = books.map((book) => `- ${howMade(book.made)}`).join('\n');
  writtenBy('bench', 'docs/PERFORMANCE.md').write(`${markdownTable(head, rows)}\n\n${made}`);
}

/** Says on which machine a run was made, and how busy that was. */
export function howMade({ windowMs, rounds, busy, ...made }: Made): string {
  const others = busy === undefined ? '' : `, of which others used ${Math.round(busy * 100)} % just before`;
  const how = `${windowMs / 1000} s a measurement, ${rounds === 1 ? 'once' : `median of ${rounds}`}`;
  return madeWith('npm run bench', made, `${others}; ${how}`);
}
