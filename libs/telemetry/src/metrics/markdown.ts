import { planeEvents } from '@isthmus/tunnel';
import { agentMetrics } from './agent.ts';
import type { Declared, Metrics } from './families.ts';
import { serverMetrics } from './server.ts';

const INTRODUCTION = `# Metrics

\`GET /metrics\` on the health port and on the admin port; \`OTEL_METRICS_EXPORTER=otlp\` also exports the same families over OTLP. Alerts and a
dashboard are in [k8s/monitoring](../k8s/monitoring/README.md). \`npm run generate\` writes this page from the code.

- \`konnectivity_network_proxy_*\` are upstream's families: names, types, labels, buckets and help of apiserver-network-proxy. A scrape has the help.
- \`isthmus_*\` are ours. No label is an agent or a destination. The first 1,000 tenants and hubs have a line each, the rest share \`(others)\`.
- \`process_*\` and \`nodejs_*\` are prom-client's. Instead of \`go_memstats_heap_inuse_bytes\` use \`nodejs_heap_size_used_bytes\`, of
  \`go_memstats_sys_bytes\` \`process_resident_memory_bytes\`, of \`go_goroutines\` \`isthmus_event_loop_delay_seconds\`.

Letters say which programs have a family: **S** \`proxy-server\`, **G** \`frontend-gw\`, **H** \`backend-hub\`, **A** \`proxy-agent\`.

With \`--tenants-dir\` there are also families by tenant. A tenant that is gone takes its lines along; an operator of one tenant sees only that
tenant's lines, on the admin port. \`proxy-server\` counts each dial and tunnel once.

Scrapers that ask for OpenMetrics 1.0 get it, all others the text format 0.0.4. In OpenMetrics, \`isthmus_dial_latency_seconds\` has exemplars: the
\`trace_id\` of a sampled dial.

A Prometheus with native histograms asks for protobuf, and gets both kinds of buckets: eight native ones for each doubling. It keeps the native
ones alone unless its scrape says \`scrape_classic_histograms\` (\`always_scrape_classic_histograms\` in Prometheus 3), which the dashboard needs.
`;

interface ProgramPage {
  readonly letter: string;
  readonly declared: readonly Declared[];
}

/** Returns the families on each program's page, except `process_*` and `nodejs_*`. */
export function programPages(): readonly ProgramPage[] {
  const tenants = { size: 0, badFiles: 0, has: () => false, certificates: () => [] };
  const servers = { strategies: ['default'], process: true, tenants } as const;
  return [
    { letter: 'S', metrics: serverMetrics(planeEvents(), { role: 'server', ...servers }) },
    { letter: 'G', metrics: serverMetrics(planeEvents(), { role: 'gateway', ...servers }) },
    { letter: 'H', metrics: serverMetrics(planeEvents(), { role: 'hub', ...servers }) },
    { letter: 'A', metrics: agentMetrics(planeEvents(), { process: true }) },
  ].map(({ letter, metrics }) => ({ letter, declared: taken(metrics) }));
}

/** Returns the text of docs/METRICS.md: a line for each family, and for each set of labels of one that differs among programs. */
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
    `${INTRODUCTION}\n## Ours\n`,
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

/** What the introduction says of all families. */
const SHARED = / The first [\d,]+ have a line each; the rest share "\(others\)"\.$/;

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
