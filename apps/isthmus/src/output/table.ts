import Table from 'cli-table3';
import { type Column, fitted, GAP, type Room } from './fit.ts';

/** No lines, because `grep` and `awk` read these tables too. */
const NO_LINES = {
  top: '',
  'top-mid': '',
  'top-left': '',
  'top-right': '',
  bottom: '',
  'bottom-mid': '',
  'bottom-left': '',
  'bottom-right': '',
  left: '',
  'left-mid': '',
  mid: '',
  'mid-mid': '',
  right: '',
  'right-mid': '',
  middle: GAP,
};

/** Nobody cuts lines that a program reads. */
const UNBOUNDED: Room = { columns: Number.POSITIVE_INFINITY, wide: false };

/** Formats cells under headings, aligned regardless of colours. An empty cell shows as `-`, so that each line has the same columns. */
export function table(
  columns: readonly (Column | string)[],
  rows: readonly (readonly string[])[],
  room = UNBOUNDED,
): string {
  const given = columns.map((column) => (typeof column === 'string' ? { name: column } : column));
  const cells = rows.map((row) => row.map((cell) => oneLine(cell) || '-'));
  const shown = fitted({ columns: given, rows: cells }, room);
  const made = new Table({
    chars: NO_LINES,
    style: { 'padding-left': 0, 'padding-right': 0, head: [], border: [] },
    head: shown.columns.map(({ name }) => name.toUpperCase()),
    colAligns: shown.columns.map(({ right }) => (right ? 'right' : 'left')),
  });
  for (const row of shown.rows) made.push([...row]);
  return `${made
    .toString()
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n')}\n`;
}

/** Replaces control characters, because texts from peers must not control the terminal. */
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for; colours (ESC [ n m) stay.
  return text.replace(/\u001b(?!\[\d+m)|[\u0000-\u001a\u001c-\u001f\u007f-\u009f]/g, ' ');
}
