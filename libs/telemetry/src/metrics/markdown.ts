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

With \`--tenants-dir\` there are also families by tenant. A tenant that is gone takes its lines along; an operator of one tenant sees only that
tenant's lines, on the admin port. \`proxy-server\` counts each dial and tunnel once.

Scrapers that ask for OpenMetrics 1.0 get it, all others the text format 0.0.4. In OpenMetrics, upstream's counters that do not end in \`_total\`
have the type \`unknown\`, and \`isthmus_dial_latency_seconds\` has exemplars: the \`trace_id\` of a sampled dial.
`;

interface ProgramPage {
  readonly name: string;
  readonly what: string;
  readonly declared: readonly Declared[];
}

/** Returns the families on each program's page, except `process_*` and `nodejs_*`. */
export function programPages(): readonly ProgramPage[] {
  const tenants = { size: 0, badFiles: 0, has: () => false, certificates: () => [] };
  const servers = { strategies: ['default'], process: true, tenants } as const;
  return [
    {
      name: 'proxy-server',
      what: 'Gateway and hub in one.',
      metrics: serverMetrics(planeEvents(), { role: 'server', ...servers }),
    },
    { name: 'frontend-gw', what: 'A gateway.', metrics: serverMetrics(planeEvents(), { role: 'gateway', ...servers }) },
    { name: 'backend-hub', what: 'A hub.', metrics: serverMetrics(planeEvents(), { role: 'hub', ...servers }) },
    { name: 'proxy-agent', what: 'An agent.', metrics: agentMetrics(planeEvents(), { process: true }) },
  ].map(({ metrics, ...page }) => ({ ...page, declared: taken(metrics) }));
}

/** Returns the text of docs/METRICS.md: each family is described once, at the first program that has it. */
export function metricsMarkdown(): string {
  const pages = programPages();
  const sections = pages.map((page, index) => {
    const earlier = pages.slice(0, index);
    const like = earlier.find(({ declared }) => page.declared.every((family) => has({ declared }, family)));
    return `## ${page.name}\n\n${page.what}${like ? without(page, like) : tablesOf(page, earlier)}`;
  });
  return [INTRODUCTION, ...sections].join('\n');
}

function tablesOf({ declared }: ProgramPage, earlier: readonly ProgramPage[]): string {
  const described = (family: Declared) => earlier.some((page) => hasLine(page, family));
  const others = declared.filter((family) => !described(family));
  const shared = declared.filter(described).map(({ name }) => `\`${name}\``);
  const more = shared.length > 0 ? ` It also has ${shared.join(', ')}, as above.` : '';
  return `${more}\n\n${tableOf(others)}\n`;
}

/** Describes a page by the families that it lacks, compared to a page that has all of its families. */
function without(page: ProgramPage, like: ProgramPage): string {
  const missing = like.declared.filter((family) => !has(page, family)).map(({ name }) => `\`${name}\``);
  return ` It has the families of ${like.name} except ${missing.join(', ')}.\n`;
}

function has({ declared }: Pick<ProgramPage, 'declared'>, { name }: Declared): boolean {
  return declared.some((family) => family.name === name);
}

/** Whether a page describes a family with the same type and labels. */
function hasLine({ declared }: ProgramPage, { name, type, labels }: Declared): boolean {
  return declared.some(
    (family) => family.name === name && family.type === type && family.labels.join() === labels.join(),
  );
}

function taken({ declared, close }: Metrics): readonly Declared[] {
  close();
  return declared;
}

function tableOf(families: readonly Declared[]): string {
  const sorted = [...families].sort((a, b) => (a.name < b.name ? -1 : 1));
  const lines = sorted.map(({ name, type, labels, help }) => {
    const named = labels.map((label) => `\`${label}\``).join(', ');
    return `| \`${name}\` | ${type} | ${named} | ${name.startsWith(UPSTREAM) ? '' : cell(help.replace(SHARED, ''))} |`;
  });
  return ['| family | type | labels | what it is |', '| --- | --- | --- | --- |', ...lines].join('\n');
}

const UPSTREAM = 'konnectivity_';

/** What the introduction says of all families. */
const SHARED = / The first [\d,]+ have a line each; the rest share "\(others\)"\.$/;

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
