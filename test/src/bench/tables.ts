import { short } from './figures.ts';
import { FAR, LINES, type Line, type Shown, STANDARD, TRACING } from './lines.ts';
import { type Book, contendersOf, figureOf } from './store.ts';

export type Row = readonly string[];

/** Contenders whose figures stand beside those of the planes as the bounds of what can be. */
const BOUNDS = ['direct', 'relays-2', 'relays-3'];

/** A row for each figure of each line, a column for each contender. */
export function figureTable(book: Book, lines: readonly Line[] = STANDARD): Row[] {
  const columns = inOrder(contendersOf(book, lines));
  const rows = lines.flatMap(({ name, title, shows }) =>
    shows.map(({ figure, label }) => {
      const cells = columns.map((contender) => cell(figureOf(book, name, contender, figure), figure));
      return [title, label, ...cells];
    }),
  );
  return [['line', 'figure', ...columns], ...rows.filter((row) => row.slice(2).some((each) => each !== ''))];
}

const FRONTS = ['grpc-uds', 'connect-uds', 'connect-tcp-mtls'];
const BY_PLANEBENCH = ' (planebench)';

/**
 * Our planes' figures beside upstream's with the same front, by planebench where it has loaded both; beside relays; and the split
 * tiers' beside the all-in-one server's.
 */
export function ratioTable(book: Book): Row[] {
  const pairs = pairsOf(contendersOf(book));
  // What may break a plane says by itself whether it did.
  const rows = STANDARD.filter(({ once }) => !once).flatMap(({ name, title, shows }) =>
    shows.map(({ figure, label, reach = '' }) => {
      const cells = pairs.map((pair) => {
        const [one, other] = pair.map((contender) => figureOf(book, name, contender, figure));
        return one === undefined || !other ? '' : short(one / other);
      });
      return [title, label, ...cells, reach];
    }),
  );
  const head = ['line', 'figure', ...pairs.map((pair) => pair.join(' / ')), 'to reach beside ANP'];
  return [head, ...rows.filter((row) => row.slice(2, -1).some((each) => each !== ''))];
}

function pairsOf(names: readonly string[]): (readonly [string, string])[] {
  const both = (pair: readonly [string, string]) => pair.every((name) => names.includes(name));
  return FRONTS.flatMap((front) => {
    const upstream = [BY_PLANEBENCH, ''].map((by) => [`${front}${by}`, `anp-${front}${by}`] as const).find(both);
    const others = [
      [front, 'relays-2'],
      [`split-${front}`, 'relays-3'],
      [`split-${front}`, front],
    ] as const;
    return [...(upstream ? [upstream] : []), ...others.filter(both)];
  });
}

/** Planes with traces beside one without, as ratios: 1.000 is no cost at all. */
export function tracingTable(book: Book): Row[] {
  return besideTable(book, TRACING, 'traces-off');
}

/** Planes with a long way in them beside that way alone, as ratios: 1.000 is all that it allows. */
export function farTable(book: Book): Row[] {
  return besideTable(book, FAR, 'far-relay');
}

/** The figures of one contender, and those of the others in ratios to them. */
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

export function asMarkdown([head = [], ...rows]: readonly Row[]): string {
  const line = (cells: Row) => `| ${cells.map((each) => each.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
