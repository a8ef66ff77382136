import { planeEvents } from '@isthmus/tunnel';
import { agentMetrics } from './agent.ts';
import type { Declared, Metrics } from './families.ts';
import { serverMetrics } from './server.ts';

/** Returns the families on each program's page, except `process_*` and `nodejs_*`. */
export function programPages() {
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

/** Returns the lists of docs/METRICS.md: a line for each family, and for each set of labels of one that differs among programs. */
export function metricsMarkdown(): string {
  const lines = new Map<string, { family: Declared; letters: string }>();
  for (const { letter, declared } of programPages()) {
    for (const family of declared) {
      const head = headOf(family);
      lines.set(head, { family, letters: `${lines.get(head)?.letters ?? ''}${letter}` });
    }
  }
  const sorted = [...lines].sort(([, a], [, b]) => (a.family.name < b.family.name ? -1 : 1));
  const upstreams = sorted.filter(([, { family }]) => family.name.startsWith(UPSTREAM));
  const own = sorted.filter(([, { family }]) => !family.name.startsWith(UPSTREAM));
  return [
    '## Ours\n',
    ...own.map(
      ([head, { family, letters }]) =>
        `- ${letters} ${head}: ${family.help.replace(SHARED, '').replaceAll('<', '&lt;')}`,
    ),
    "\n## Upstream's\n",
    ...upstreams.map(([head, { letters }]) => `- ${letters} ${head}`),
    '',
  ].join('\n');
}

/** A family's name, labels and type. */
export function headOf({ name, type, labels }: Declared): string {
  return `\`${name}${labels.length > 0 ? `{${labels}}` : ''}\` ${type}`;
}

function taken({ declared, close }: Metrics): readonly Declared[] {
  close();
  return declared;
}

const UPSTREAM = 'konnectivity_';

/** What the page's introduction says of all families. */
const SHARED = / The first [\d,]+ have a line each; the rest share "\(others\)"\.$/;
