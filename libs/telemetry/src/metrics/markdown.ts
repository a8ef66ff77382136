import { planeEvents } from '@isthmus/tunnel';
import { agentMetrics } from './agent.ts';
import { numeral } from './exposition.ts';
import type { Declared, Metrics } from './families.ts';
import { serverMetrics } from './server.ts';

const INTRODUCTION = `# Metrics

Every metric family of every program. This page is generated from where they are declared, in \`libs/telemetry/src/metrics\`
(\`npm run generate\`); \`npm run ok\` fails when it is out of date. Alerts and a dashboard are in [k8s/monitoring](../k8s/monitoring/README.md).

\`GET /metrics\` on the health port, and on the admin port. \`process_*\` and \`nodejs_*\` stand there as well, as prom-client has them;
which of these there are depends on the system and the runtime. \`nodejs_eventloop_lag_*\` do not: \`isthmus_event_loop_delay_seconds\` tells the same,
and its buckets can be added up and read by more than one scraper. A page is without all of these while they cannot be read.

**Upstream's families** (\`konnectivity_network_proxy_server_*\`, \`konnectivity_network_proxy_agent_*\`) have the names, types, labels,
buckets and help of apiserver-network-proxy, and no label of ours. Of \`proxy-server\`, a gateway and a hub in one process, the gateway's dials
and tunnels count, so that each counts once. A family with labels has a line for each set of labels that was used.
Gauges whose labels are known beforehand are there at 0; upstream's counters with labels have only what occurred.

**Families of ours** begin with \`isthmus_\`. Neither an agent nor a destination is a label, and an error is one of the dozen names of
RFC 9209. Of tenants and hubs 1,000 have a line each, the first ones to come; the others share the line \`(others)\`, as do names of
more than 128 characters. They are gauges, and one moves up when another of the first has nothing left.

**Formats.** A scraper that asks for \`application/openmetrics-text\` gets OpenMetrics 1.0, as Prometheus does by default; all others get the text
format 0.0.4, as upstream has it. Names, labels and bounds of samples are the same in both. OpenMetrics demands that a counter's samples
end in \`_total\`. Those of upstream's counters that do not (\`dial_failure_count\`, \`culled_leases_count\`,
\`server_connection_failure_count\`) are told there as of type \`unknown\`, so that they keep their names: \`rate()\` works on them as it did.

**Exemplars** are in OpenMetrics alone: each bucket of \`isthmus_dial_latency_seconds\` in the phases \`total\` and \`attempt\` has the \`trace_id\` of the
last dial in it whose trace is sampled; in \`total\` also of one whose trace is kept for its failure or its time (\`--trace-slow\`).
Prometheus keeps them with \`--enable-feature=exemplar-storage\`.

**Cost.** All metrics of a dial that becomes a tunnel and ends, upstream's and ours, take about half a microsecond of CPU (Node 20), and the page 3 ms
with 50,000 tunnels.
`;

interface ProgramPage {
  readonly name: string;
  readonly what: string;
  readonly declared: readonly Declared[];
}

/** What each program has on its page, except `process_*` and `nodejs_*`. */
export function programPages(): readonly ProgramPage[] {
  const servers = { strategies: ['default'], process: true } as const;
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

/** Describes a page by the families that it lacks, compared to a page that has them all. */
function without(page: ProgramPage, like: ProgramPage): string {
  const missing = like.declared.filter((family) => !has(page, family)).map(({ name }) => `\`${name}\``);
  return ` It has the families of ${like.name} but for ${missing.join(', ')}.\n`;
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
