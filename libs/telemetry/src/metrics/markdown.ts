import { planeEvents } from '@isthmus/tunnel';
import { agentMetrics } from './agent.ts';
import type { Declared, Metrics } from './families.ts';
import { serverMetrics } from './server.ts';

interface ProgramPage {
  readonly letter: string;
  readonly declared: readonly Declared[];
}

/** Returns the families on each program's page, except `process_*` and `nodejs_*`. */
export function programPages(): readonly ProgramPage[] {
  const tenants = { size: 0, badFiles: 0, has: () => false, certificates: () => [] };
  const program = () => ({ events: planeEvents(), tunnels: [] });
  const servers = { strategies: ['default'], process: true, tenants } as const;
  return [
    { letter: 'S', metrics: serverMetrics(program(), { role: 'server', ...servers }) },
    { letter: 'G', metrics: serverMetrics(program(), { role: 'gateway', ...servers }) },
    { letter: 'H', metrics: serverMetrics(program(), { role: 'hub', ...servers }) },
    { letter: 'A', metrics: agentMetrics(program(), { process: true }) },
  ].map(({ letter, metrics }) => ({ letter, declared: taken(metrics) }));
}

/** Returns the tables of docs/METRICS.md: a line for each family, and for each set of labels of one that differs among programs. */
export function metricsMarkdown(): string {
  const lines = new Map<string, { family: Declared; letters: string[] }>();
  for (const { letter, declared } of programPages()) {
    for (const family of declared) {
      const head = headOf(family);
      const line = lines.get(head) ?? { family, letters: [] };
      lines.set(head, { ...line, letters: [...line.letters, letter] });
    }
  }
  const sorted = [...lines].sort(([, a], [, b]) => (a.family.name < b.family.name ? -1 : 1));
  const upstreams = sorted.filter(([, { family }]) => family.name.startsWith(UPSTREAM));
  const own = sorted.filter(([, { family }]) => !family.name.startsWith(UPSTREAM));
  return [
    '## Ours\n',
    '| family | type | labels | of | what it is |',
    '| --- | --- | --- | --- | --- |',
    ...own.map(
      ([head, { family, letters }]) => `${head} ${letters.join(' ')} | ${cell(family.help.replace(SHARED, ''))} |`,
    ),
    "\n## Upstream's\n",
    '| family | type | labels | of |',
    '| --- | --- | --- | --- |',
    ...upstreams.map(([head, { letters }]) => `${head} ${letters.join(' ')} |`),
    '',
  ].join('\n');
}

/** The first cells of a family's line. */
export function headOf({ name, type, labels }: Declared): string {
  return `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} |`;
}

function taken({ declared, close }: Metrics): readonly Declared[] {
  close();
  return declared;
}

const UPSTREAM = 'konnectivity_';

/** What the page's introduction says of all families. */
const SHARED = / The first [\d,]+ have a line each; the rest share "\(others\)"\.$/;

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
