import Table from 'cli-table3';

/** A column: its heading and the alignment of its cells. */
export type Column = string | { readonly name: string; readonly right: true };

const GAP = '   ';

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

/** Formats cells under headings, aligned regardless of colours. An empty cell shows as `-`, so that each line has the same columns. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const made = new Table({
    chars: NO_LINES,
    style: { 'padding-left': 0, 'padding-right': 0, head: [], border: [] },
    head: columns.map((column) => (typeof column === 'string' ? column : column.name).toUpperCase()),
    colAligns: columns.map((column) => (typeof column === 'string' ? 'left' : 'right')),
  });
  for (const row of rows) made.push(row.map((cell) => oneLine(cell) || '-'));
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
