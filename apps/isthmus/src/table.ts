import { stripVTControlCharacters } from 'node:util';

/** Between two columns. */
const GAP = '   ';

/** A column: its heading, the alignment of its cells, and what becomes of it where there is little or much room. */
export interface Column {
  readonly name: string;
  readonly right?: true;
  /** If a table is wider than the terminal, the column with the lowest number goes first. Unset: it stays. */
  readonly drop?: number;
  /** Its cells may be cut to this many characters to make room. */
  readonly least?: number;
  /** Its cells are broken into lines instead: none of their words is lost. */
  readonly folds?: boolean;
  /** Its cells never take more than this many characters, except with `-o wide`. */
  readonly most?: number;
  /** Shown with `-o wide` only. */
  readonly wide?: true;
}

/** The room for a table. */
export interface Room {
  /** Width of the terminal; Infinity if nobody cuts the lines. */
  readonly columns: number;
  /** Show all columns, however long the lines become. */
  readonly wide: boolean;
  /** False leaves out the names of the columns. */
  readonly headers?: boolean;
  /** So many rows were printed before, with the headers: they only count for the widths. */
  readonly printed?: number;
}

interface Cells {
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly string[])[];
}

/** A column with its cells, and the width that it would like and needs. */
interface Strip {
  readonly column: Column;
  readonly cells: readonly string[];
  readonly natural: number;
  readonly least: number;
}

/** Returns the columns for which there is room, with cells cut where that is enough. */
export function fitted({ columns, rows }: Cells, room: Room): Cells & { readonly widths: readonly number[] } {
  const limit = room.wide ? Number.POSITIVE_INFINITY : room.columns;
  const cellsOf = (index: number) => rows.map((row) => row[index] ?? '');
  let strips = columns.map((column, index) => stripOf(column, cellsOf(index), room.wide));
  if (!room.wide) strips = strips.filter(({ column }) => !column.wide);
  while (leastWidth(strips) > limit) {
    const first = firstToDrop(strips);
    if (!first) break;
    strips = strips.filter((strip) => strip !== first);
  }
  let spare = Math.max(0, limit - leastWidth(strips));
  const widths = strips.map(({ natural, least }) => {
    const more = Math.min(spare, natural - least);
    spare -= more;
    return least + more;
  });
  const cells = strips.map(({ column, cells }, index) => {
    const width = widths[index] ?? 0;
    return cells.map((cell) => (column.folds ? foldedTo(width, cell) : cut(cell, width)));
  });
  return {
    columns: strips.map(({ column }) => column),
    widths,
    rows: rows.map((_, row) => cells.map((own) => own[row] ?? '')),
  };
}

function stripOf(column: Column, cells: readonly string[], wide: boolean): Strip {
  const longest = cells.reduce((most, cell) => Math.max(most, widthOf(cell)), column.name.length);
  const natural = wide ? longest : Math.min(longest, column.most ?? longest);
  const least = column.least === undefined ? natural : Math.min(natural, Math.max(column.least, column.name.length));
  return { column, cells, natural, least };
}

function leastWidth(strips: readonly Strip[]): number {
  return strips.reduce((sum, { least }) => sum + least, GAP.length * (strips.length - 1));
}

function firstToDrop(strips: readonly Strip[]): Strip | undefined {
  const rank = ({ column }: Strip) => column.drop ?? Number.POSITIVE_INFINITY;
  const [first] = strips.filter(({ column }) => column.drop !== undefined).sort((a, b) => rank(a) - rank(b));
  return first;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: colours begin with ESC.
const COLOURS = /(\u001b\[\d+m)/;

/** Number of characters that a text takes on the screen. */
export function widthOf(text: string): number {
  return [...stripVTControlCharacters(text)].length;
}

/** Cuts a text to `most` characters, and keeps its colours. The last character then shows that there was more. */
export function cut(text: string, most: number): string {
  if (widthOf(text) <= most) return text;
  let left = most - 1;
  // `split` puts the colours at the odd places.
  const parts = text.split(COLOURS).map((part, place) => {
    if (place % 2 === 1 || left < 0) return place % 2 === 1 ? part : '';
    const characters = [...part];
    if (characters.length <= left) {
      left -= characters.length;
      return part;
    }
    const kept = `${characters.slice(0, left).join('')}…`;
    left = -1;
    return kept;
  });
  return parts.join('');
}

/** Breaks a text at spaces, and words that are longer anywhere. Its words have no colours. */
function foldedTo(width: number, text: string): string {
  if (widthOf(text) <= width) return text;
  const words = text.split(' ').flatMap((word) => word.match(new RegExp(`.{1,${width}}`, 'gu')) ?? ['']);
  return wrapped(words.join(' '), width).join('\n');
}

/** Breaks a text at spaces into lines of at most `columns` characters. Lines after the first begin with `indent`. */
export function wrapped(text: string, columns: number, indent = ''): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    if (last === undefined) lines.push(word);
    else if (widthOf(last) + 1 + widthOf(word) <= columns) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(`${indent}${word}`);
  }
  return lines;
}

/**
 * Breaks the lines of a text at spaces so that they fit the room, indented as each is and by two more.
 * @param which those to break. Default: all
 */
export function folded(text: string, { columns, wide }: Room, which = (_line: string) => true): string {
  const fold = (line: string) => wrapped(line, columns, `${/^ */.exec(line)?.[0]}  `).join('\n');
  return text
    .split('\n')
    .map((line) => (wide || !which(line) ? line : fold(line)))
    .join('\n')
    .replaceAll(NO_BREAK, ' ');
}

/** Breaks prose, and no row of a table or picture, whose cells stand apart. */
export function foldedProse(text: string, room: Room): string {
  return folded(withCommands(text), room, (line) => !line.trim().includes(GAP));
}

/** A program's name, or one of Redis' words, and what follows it: a word, options with their values, and words that no sentence has. */
const COMMAND =
  /CONFIG SET \S+ \w+|(?:isthmus|kubectl|ACL) [\w-]+(?: (?:[-+~]\S*[=:,]\S*|-[-\w]+(?: [a-z\d]\S*)?|\S*[\d:=/A-Z_+-]\S*|\S+(?= [-+~])))*/g;

/** Stands between words that no line break may part, while lines are broken. */
const NO_BREAK = '\u00a0';

/** Keeps each command in a text on one line of `folded`, however long, since people paste it. */
export function withCommands(text: string): string {
  return text.replaceAll(COMMAND, (command) => command.replaceAll(' ', NO_BREAK));
}

/** Nobody cuts lines that a program reads. */
export const UNBOUNDED: Room = { columns: Number.POSITIVE_INFINITY, wide: false };

/** Formats cells under headings, aligned regardless of colours. An empty cell shows as `-`, so that each line has the same columns. */
export function table(
  columns: readonly (Column | string)[],
  rows: readonly (readonly string[])[],
  room = UNBOUNDED,
): string {
  const given = columns.map((column) => (typeof column === 'string' ? { name: column } : column));
  const cells = rows.map((row) => row.map((cell) => cell || '-'));
  const shown = fitted({ columns: given, rows: cells }, room);
  const lines = shown.rows.slice(room.printed).map((row) => row.map((cell) => cell.split('\n')));
  const head = shown.columns.map(({ name }) => [name.toUpperCase()]);
  const padded = (text: string, index: number) => {
    const pad = ' '.repeat(Math.max(0, (shown.widths[index] ?? 0) - widthOf(text)));
    return shown.columns[index]?.right ? pad + text : text + pad;
  };
  // A cell that is folded makes a row of several lines.
  return (room.headers === false ? lines : [head, ...lines])
    .flatMap((row) => {
      const height = Math.max(...row.map(({ length }) => length));
      return Array.from({ length: height }, (_, at) =>
        row.map((cell, index) => padded(cell[at] ?? '', index)).join(GAP),
      );
    })
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}
