import { readFileSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { ROOT } from '../harness/runtime.ts';
import type { Outcome } from './faults/run.ts';
import { VERSION } from './settings.ts';

export const PAGE = `${ROOT}docs/KUBERNETES.md`;
const BEGIN = '<!-- npm run cluster writes from here -->';
const END = '<!-- to here -->';

const HEAD = ['how the API server dials', 'what is done', 'calls', 'failed', 'longest', 'sessions cut'];

/** The outcomes as a table in Markdown. */
export function table(outcomes: readonly Outcome[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [HEAD, HEAD.map(() => '---'), ...outcomes.map(cells)].map(line).join('\n');
}

function cells({ way, fault, figures }: Outcome): string[] {
  const { calls, failed, underWay, longest, cut } = figures;
  const failures = underWay > 0 ? `${failed} (and ${underWay} under way)` : String(failed);
  return [way.name, fault, String(calls), failures, `${(longest / 1000).toFixed(1)} s`, `${cut} of 3`];
}

/** Writes the outcomes of a whole run into the page for operators. */
export function writePage(outcomes: readonly Outcome[]): void {
  const when = new Date().toISOString().slice(0, 10);
  const made = `\`npm run cluster\`, ${when}, Kubernetes ${VERSION}, ${availableParallelism()} cores.`;
  writeFileSync(PAGE, pageWith(readFileSync(PAGE, 'utf8'), `${made}\n\n${table(outcomes)}`));
}

/** Returns the page with another text between its marks. */
export function pageWith(page: string, text: string): string {
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${PAGE} lacks the lines ${BEGIN} and ${END}`);
  return `${page.slice(0, begin)}${BEGIN}\n\n${text}\n\n${page.slice(end)}`;
}
