import { markdownTable, writtenBy } from '../harness/docs-page.ts';
import { short } from '../rig/figures.ts';
import { madeWith } from '../rig/page.ts';
import { LINES, type Line } from './lines.ts';
import { type Book, contendersOf, figureOf, type Made } from './store.ts';

export type Row = readonly string[];

const FRONTS = ['grpc-uds', 'connect-uds', 'connect-tcp-mtls'];
const BY_PLANEBENCH = ' (planebench)';

/** Returns a row for each figure of each line, with a column for each contender. */
export function figureTable(book: Book, lines: readonly Line[] = LINES): Row[] {
  const columns = contendersOf(book);
  const rows = lines.flatMap(({ name, title, shows }) =>
    Object.entries(shows).map(([figure, label]) => {
      const values = columns.map((contender) => figureOf(book, name, contender, figure));
      return [title, label, ...values.map((value) => (value === undefined ? '' : short(value)))];
    }),
  );
  return tableOf(columns, rows);
}

/** Returns a table of those rows that have a figure. */
function tableOf(columns: readonly string[], rows: readonly Row[]): Row[] {
  return [['line', 'figure', ...columns], ...rows.filter((row) => row.slice(2).some((each) => each !== ''))];
}

type Pair = readonly [string, string];

/**
 * Returns ratios of our planes' figures to upstream's with the same front. Each is by planebench if it has loaded both, and a range if several runs have it: a ratio holds only within its run. Lines that may break a plane are
 * left out: they say themselves whether they did.
 */
export function upstreamTable(books: readonly Book[]): Row[] {
  const names = [...new Set(books.flatMap((book) => contendersOf(book)))];
  const columns = FRONTS.map((head) => ({
    head,
    // Of these, the first that has a figure counts.
    pairs: [BY_PLANEBENCH, ''].map((by) => [`${head}${by}`, `anp-${head}${by}`] as const).filter(isIn(names)),
  })).filter(({ pairs }) => pairs.length > 0);
  const rows = LINES.filter(({ once }) => !once).flatMap(({ name, title, shows }) =>
    Object.entries(shows).map(([figure, label]) => {
      const found = columns.map(({ pairs }) => books.flatMap((book) => firstRatio(book, name, figure, pairs)));
      return [title, label, ...found.map(range)];
    }),
  );
  const heads = columns.map(({ head }) => head);
  return tableOf(heads, rows);
}

function isIn(names: readonly string[]): (pair: Pair) => boolean {
  return (pair) => pair.every((name) => names.includes(name));
}

/** Returns the ratio of the first pair that has one, or nothing. */
function firstRatio(book: Book, line: string, figure: string, pairs: readonly Pair[]): number[] {
  return pairs.flatMap((pair) => ratio(book, line, figure, pair) ?? []).slice(0, 1);
}

function range(values: readonly number[]): string {
  if (values.length === 0) return '';
  const [least, most] = [short(Math.min(...values)), short(Math.max(...values))];
  return least === most ? least : `${least}–${most}`;
}

function ratio(book: Book, line: string, figure: string, pair: Pair): number | undefined {
  const [one, other] = pair.map((contender) => figureOf(book, line, contender, figure));
  return one === undefined || !other ? undefined : one / other;
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
