import { readFileSync, writeFileSync } from 'node:fs';
import { ROOT } from './runtime.ts';

/** A line of a table in Markdown, which no cell can break. */
export function tableLine(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
}

/** @param rows cells, or lines as `tableLine` makes them */
export function markdownTable(head: readonly string[], rows: readonly (string | readonly string[])[]): string {
  const lines = rows.map((row) => (typeof row === 'string' ? row : tableLine(row)));
  return [tableLine(head), tableLine(head.map(() => '---')), ...lines].join('\n');
}

/**
 * The part of a page that `npm run TOOL` writes, between two marks.
 * @param page its path in the repository
 */
export function writtenBy(tool: string, page: string) {
  const path = `${ROOT}${page}`;
  const whole = readFileSync(path, 'utf8');
  const [first, last] = [`<!-- npm run ${tool} writes from here -->\n`, '<!-- to here -->'];
  const [begin, end] = [whole.indexOf(first), whole.indexOf(last)];
  if (begin < 0 || end < begin) throw new Error(`${page} has no lines ${first.trim()} and ${last}`);
  const from = begin + first.length;
  /** Returns the page with another text there. */
  const pageWith = (text: string) => `${whole.slice(0, from)}\n${text}\n\n${whole.slice(end)}`;
  return { before: whole.slice(from, end), pageWith, write: (text: string) => writeFileSync(path, pageWith(text)) };
}
