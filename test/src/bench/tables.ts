import { short } from './figures.ts';
import { LINES, type Line, type Shown, STANDARD } from './lines.ts';
import { type Book, contendersOf, figureOf } from './store.ts';

export type Row = readonly string[];

/** Contenders whose figures stand beside those of the planes as the bounds of what can be. */
const BOUNDS = ['direct', 'relays-2', 'relays-3'];

/** A row for each figure of each line, a column for each contender. */
export function figureTable(book: Book, lines: readonly Line[] = STANDARD): Row[] {
  const columns = inOrder(contendersOf(book));
  const rows = lines.flatMap(({ name, title, shows }) =>
    shows.map(({ figure, label }) => {
      const cells = columns.map((contender) => cell(figureOf(book, name, contender, figure)));
      return [title, label, ...cells];
    }),
  );
  return [['line', 'figure', ...columns], ...rows.filter((row) => row.slice(2).some((each) => each !== ''))];
}

/** How the second book's figures stand to the first's: 1.00 is the same. */
export function comparison(before: Book, after: Book): Row[] {
  const columns = inOrder(contendersOf(before)).filter((each) => contendersOf(after).includes(each));
  const rows = LINES.flatMap((line) => line.shows.flatMap((shown) => compared(before, after, columns, line, shown)));
  return [['line', 'figure', 'contender', 'before', 'after', 'ratio', ''], ...rows];
}

function compared(before: Book, after: Book, columns: readonly string[], { name, title }: Line, shown: Shown): Row[] {
  return columns.flatMap((contender) => {
    const [a, b] = [before, after].map((book) => figureOf(book, name, contender, shown.figure));
    if (a === undefined || b === undefined) return [];
    const ratio = a === 0 ? undefined : b / a;
    return [[title, shown.label, contender, cell(a), cell(b), cell(ratio), verdict(ratio, shown)]];
  });
}

/** Two rounds on a busy machine may differ by so much. */
const NOISE = 0.1;

function verdict(ratio: number | undefined, { better }: Shown): string {
  if (ratio === undefined || Math.abs(ratio - 1) <= NOISE) return '';
  return ratio > 1 === (better === 'more') ? 'better' : 'worse';
}

function cell(value: number | undefined): string {
  return value === undefined ? '' : short(value);
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

export function asMarkdown([head = [], ...rows]: readonly Row[]): string {
  const line = (cells: Row) => `| ${cells.map((each) => each.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
