import { readFileSync, writeFileSync } from 'node:fs';
import { ROOT } from '../harness/index.ts';
import type { Book, Made } from './store.ts';
import { asMarkdown, upstreamTable } from './tables.ts';

const PAGE = `${ROOT}docs/PERFORMANCE.md`;
const BEGIN = '<!-- npm run bench writes from here -->';
const END = '<!-- to here -->';

/** Writes the ratios of several runs to ANP's into docs/PERFORMANCE.md, as ranges. */
export function writePage(books: readonly [Book, ...Book[]]): void {
  const text = readFileSync(PAGE, 'utf8');
  const [begin, end] = [text.indexOf(BEGIN), text.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${PAGE} has no lines ${BEGIN} and ${END}`);
  const parts = [asMarkdown(upstreamTable(books)), books.map(({ made }) => `- ${madeWith(made)}`).join('\n')];
  writeFileSync(PAGE, `${text.slice(0, begin)}${BEGIN}\n\n${parts.join('\n\n')}\n\n${text.slice(end)}`);
}

/** Says on which machine a run was made, and how busy that was. */
export function madeWith({ at, node, cores, processor, commit, windowMs, rounds, busy }: Made): string {
  const when = `${at.slice(0, 10)}, commit ${commit}, Node ${node}, ${cores} cores (${processor})`;
  const others = busy === undefined ? '' : `, of which others used ${Math.round(busy * 100)} % just before`;
  const how = `${windowMs / 1000} s a measurement, ${rounds === 1 ? 'once' : `median of ${rounds}`}`;
  return `\`npm run bench\`, ${when}${others}; ${how}.`;
}
