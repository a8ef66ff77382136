import { planeEvents } from '@isthmus/tunnel';
import { agentMetrics } from '../agent.ts';
import { serverMetrics } from '../server.ts';
import { numeral } from './exposition.ts';
import type { Declared, Metrics } from './families.ts';

const INTRODUCTION = `# Metrics

Every metric family of every program. \`npm run generate\` writes this page from the declarations in \`libs/telemetry/src/metrics\`;
\`npm run ok\` fails if it is out of date. Alerts and a dashboard are in [k8s/monitoring](../k8s/monitoring/README.md).

\`GET /metrics\` works on the health port and on the admin port. It also has prom-client's \`process_*\` and \`nodejs_*\` families;
which ones depends on the system and the runtime. It leaves out \`nodejs_eventloop_lag_*\`: \`isthmus_event_loop_delay_seconds\` measures the same,
its buckets can be added up, and several scrapers can read it. If these families cannot be read, the page leaves them out.

**Go's families** \`go_*\` and \`promhttp_*\`, which upstream's pages have from Go's client library, are not here: they describe a runtime that
these programs do not have, and a dashboard that showed Node's heap under Go's names would mislead. \`process_*\` has the same names in
both. Instead of \`go_memstats_heap_inuse_bytes\` use \`nodejs_heap_size_used_bytes\`, of \`go_memstats_sys_bytes\`
\`process_resident_memory_bytes\`, of \`go_gc_duration_seconds\` \`nodejs_gc_duration_seconds\`, of \`go_info\` \`nodejs_version_info\`, and of
\`go_goroutines\`, where it stood for load, \`isthmus_event_loop_delay_seconds\` and the gauges of connections and tunnels. Prometheus itself
records what \`promhttp_metric_handler_requests_total\` counts: \`up\`, \`scrape_duration_seconds\` and \`scrape_samples_scraped\`.

**Upstream's families** (\`konnectivity_network_proxy_server_*\`, \`konnectivity_network_proxy_agent_*\`) have the names, types, labels,
buckets and help of apiserver-network-proxy, and no label of ours. \`proxy-server\`, a gateway and a hub in one process, counts
the gateway's dials and tunnels, so that each counts once. A family with labels has one line for each set of labels that was used.
Gauges whose labels are known in advance start at 0; upstream's counters with labels show only what occurred.

**Our own families** begin with \`isthmus_\`. No label is an agent or a destination, and an error is one of a dozen names from
RFC 9209. The first 1,000 tenants and the first 1,000 hubs have a line each. The rest share the line \`(others)\`, and so do names longer than
128 characters. When one of the first 1,000 drops to zero, one of the rest takes its place.

With \`--tenants-dir\` there are also the families of each tenant: \`isthmus_tenants\`, \`isthmus_tenant_files_bad\`, \`isthmus_tenant_agents\`,
\`isthmus_tenant_dials_total\`, \`isthmus_tenant_tunnel_bytes_total\`, \`isthmus_tenant_refused_total\` and
\`isthmus_tenant_certificate_expiry_timestamp_seconds\`. A tenant in force that has had something to count has a line, and a tenant that is
gone takes its lines along. An operator of one tenant gets only lines with that tenant, on the admin port.

**Formats.** A scraper that asks for \`application/openmetrics-text\`, as Prometheus does by default, gets OpenMetrics 1.0. All others get the text
format 0.0.4, as from upstream. Names, labels and bounds of samples are the same in both. OpenMetrics requires a counter's samples to
end in \`_total\`. Three of upstream's counters do not (\`dial_failure_count\`, \`culled_leases_count\`,
\`server_connection_failure_count\`). In OpenMetrics they have the type \`unknown\` and keep their names; \`rate()\` works on them as before.

**Exemplars** exist only in OpenMetrics. Each bucket of \`isthmus_dial_latency_seconds\` in the phases \`total\` and \`attempt\` has the \`trace_id\` of
its last sampled dial. In \`total\`, that can also be a dial that failed or was slow (\`--trace-slow\`).
Prometheus stores them with \`--enable-feature=exemplar-storage\`.

**Cost.** All metrics of one dial, from its start to the end of its tunnel, take about half a microsecond of CPU (Node 20). The page takes
3 ms with 50,000 tunnels.
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

/** Returns the text of docs/METRICS.md. */
export function metricsMarkdown(): string {
  const pages = programPages();
  const sections = pages.map((page, index) => {
    const like = pages.slice(0, index).find((earlier) => page.declared.every((family) => has(earlier, family)));
    return `## ${page.name}\n\n${page.what}${like ? without(page, like) : tablesOf(page)}`;
  });
  return [INTRODUCTION, ...sections].join('\n');
}

function tablesOf({ declared }: ProgramPage): string {
  const upstream = declared.filter((family) => !isOurs(family));
  return `\n\n### Upstream's\n\n${tableOf(upstream)}\n\n### Ours\n\n${tableOf(declared.filter(isOurs))}\n`;
}

/** Describes a page by the families that it lacks, compared to a page that has all of its families. */
function without(page: ProgramPage, like: ProgramPage): string {
  const missing = like.declared.filter((family) => !has(page, family)).map(({ name }) => `\`${name}\``);
  return ` It has the families of ${like.name} except ${missing.join(', ')}.\n`;
}

function has({ declared }: ProgramPage, { name }: Declared): boolean {
  return declared.some((family) => family.name === name);
}

function taken({ declared, close }: Metrics): readonly Declared[] {
  close();
  return declared;
}

function isOurs({ name }: Declared): boolean {
  return name.startsWith('isthmus_');
}

function tableOf(families: readonly Declared[]): string {
  const sorted = [...families].sort((a, b) => (a.name < b.name ? -1 : 1));
  const lines = sorted.map(({ name, type, labels, help, buckets }) => {
    const bounds = buckets ? ` Buckets: ${buckets.map(numeral).join(' ')}.` : '';
    const named = labels.map((label) => `\`${label}\``).join(', ');
    return `| \`${name}\` | ${type} | ${named} | ${cell(withStop(help) + bounds)} |`;
  });
  return ['| family | type | labels | what it is |', '| --- | --- | --- | --- |', ...lines].join('\n');
}

/** Only some of upstream's help texts end in a full stop. */
function withStop(help: string): string {
  return /[.)]$/.test(help) ? help : `${help}.`;
}

function cell(text: string): string {
  return text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
}
