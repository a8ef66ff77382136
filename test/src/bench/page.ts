import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { ROOT } from '../harness/index.ts';
import { draw, type Series } from './drawing.ts';
import { short } from './figures.ts';
import { GROWING, GROWTH, type Growth, type GrowthName } from './lines.ts';
import { type Book, contendersOf, figureOf, type Made, merged } from './store.ts';
import {
  asMarkdown,
  farTable,
  figureTables,
  type Row,
  relayTable,
  resumeTables,
  tracingTable,
  upstreamTable,
} from './tables.ts';

const PAGE = `${ROOT}docs/PERFORMANCE.md`;
const DRAWINGS = `${ROOT}docs/performance`;
const BEGIN = '<!-- npm run bench writes from here -->';
const END = '<!-- to here -->';

/** Writes the tables of several runs into docs/PERFORMANCE.md, and drawings of their growth lines next to it. */
export function writePage(books: readonly [Book, ...Book[]]): void {
  const book = merged(books);
  const text = readFileSync(PAGE, 'utf8');
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${PAGE} has no lines ${BEGIN} and ${END}`);
  const names = Object.keys(GROWTH) as GrowthName[];
  const grown = names.filter((name) => seriesOf(book, name).length > 0);
  mkdirSync(DRAWINGS, { recursive: true });
  for (const name of grown) writeFileSync(`${DRAWINGS}/${name}.svg`, drawn(book, name));
  const figures = figureTables(book);
  const parts = [
    books.map(({ made }) => `- ${madeWith(made)}`).join('\n'),
    ...titled('### Beside ANP', upstreamTable(books)),
    ...titled('### Beside relays', relayTable(book)),
    ...titled('### Figures', figures.own),
    ...titled('### Figures, loaded by planebench', figures.planebench),
    ...titled('### An agent far away', farTable(book)),
    ...titled('### What traces cost', tracingTable(book)),
    ...resumeTables(book).flatMap((rows) => titled('### What resume costs', rows)),
    ...grown.map((name) => section(book, name)),
  ];
  writeFileSync(PAGE, `${text.slice(0, begin)}${BEGIN}\n\n${parts.join('\n\n')}\n\n${text.slice(end)}`);
}

/** Says on which machine a run was made, and how busy that was. */
export function madeWith({ at, node, cores, processor, commit, windowMs, rounds, busy }: Made): string {
  const when = `${at.slice(0, 10)}, commit ${commit}, Node ${node}, ${cores} cores (${processor})`;
  const others = busy === undefined ? '' : `, of which others used ${Math.round(busy * 100)} % just before`;
  const how = `${windowMs / 1000} s a measurement, ${rounds === 1 ? 'once' : `median of ${rounds}`}`;
  return `\`npm run bench\`, ${when}${others}; ${how}.`;
}

/** Returns nothing for a table without rows. */
function titled(title: string, rows: readonly Row[]): string[] {
  return rows.length > 1 ? [title, asMarkdown(rows)] : [];
}

export function seriesOf(book: Book, of: GrowthName): Series[] {
  const { figure } = (GROWTH[of] as Growth).figure;
  return contendersOf(book).flatMap((name) => {
    const points = GROWING.flatMap(({ growth, name: line }) => {
      const value = growth?.of === of ? figureOf(book, line, name, figure) : undefined;
      return growth && value !== undefined ? [[growth.at, value] as const] : [];
    });
    return points.length > 0 ? [{ name, points }] : [];
  });
}

export function drawn(book: Book, of: GrowthName): string {
  const { title, axis, figure }: Growth = GROWTH[of];
  return draw({ title, xLabel: axis, yLabel: figure.label, series: seriesOf(book, of) });
}

function section(book: Book, of: GrowthName): string {
  const { title, axis }: Growth = GROWTH[of];
  return [`### ${title}`, `![${title}](performance/${of}.svg)`, asMarkdown(growthTable(book, of, axis))].join('\n\n');
}

/** The last column is the ratio of the far end to the near end: 1.00 is a line that does not bend. */
export function growthTable(book: Book, of: GrowthName, axis: string): Row[] {
  const series = seriesOf(book, of);
  const at = [...new Set(series.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
  const rows = series.map(({ name, points }) => {
    const values = new Map(points);
    const cells = at.map((x) => values.get(x)).map((value) => (value === undefined ? '' : short(value)));
    const [near, far] = [points[0]?.[1], points.at(-1)?.[1]];
    return [name, ...cells, near && far !== undefined ? short(far / near) : ''];
  });
  return [[axis, ...at.map(String), 'last / first'], ...rows];
}
