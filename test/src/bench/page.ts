import { markdownTable, tableLine, writtenBy } from '../harness/docs-page.ts';
import type { Book, Made } from './store.ts';
import { upstreamTable } from './tables.ts';

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
