import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { stringify } from 'yaml';
import {
  CHART,
  EXAMPLES,
  example,
  helm,
  KUBERNETES,
  leaves,
  NAMESPACES,
  readAsApiServer,
  render,
  renderFor,
  noHelm as skip,
  tryRender,
} from './k8s/chart.ts';
import { composed, kustomize, type Manifest, noKubectl, readManifest, root } from './k8s/manifests.ts';
import { alerts } from './monitoring/files.ts';

/** Helm's own labels, which nothing selects by. */
const LABELS = /^metadata\/labels\/(app\.kubernetes\.io\/(managed-by|instance|version)|helm\.sh\/chart)$/;

/** An object's kind, namespace and name, without the hash that kustomize adds to the name of a config map. */
function keyOf({ kind, metadata }: Manifest): string {
  const name = kind === 'ConfigMap' ? metadata.name.replace(/-[bcdfghkmt2-9]{10}$/, '') : metadata.name;
  return [kind, metadata.namespace, name].filter(Boolean).join(' ');
}

/** Lists what differs between objects, as "object path: theirs | ours". */
function differences(theirs: readonly Manifest[], ours: readonly Manifest[]): string[] {
  const [left, right] = [theirs, ours].map((side) => new Map(side.map((object) => [keyOf(object), object]))) as [
    Map<string, Manifest>,
    Map<string, Manifest>,
  ];
  return [...new Set([...left.keys(), ...right.keys()])].flatMap((key) => {
    const [before, now] = [left.get(key), right.get(key)];
    if (!before || !now) return [before ? `${key}: only in kustomize` : `${key}: only in the chart`];
    const [old, fresh] = [leaves(before), leaves(now)];
    return [...new Set([...old.keys(), ...fresh.keys()])]
      .filter((path) => !LABELS.test(path) && path !== 'metadata/name' && old.get(path) !== fresh.get(path))
      .map((path) => `${key} ${path}: ${old.get(path)} | ${fresh.get(path)}`);
  });
}

/** What differs on purpose. Helm makes namespaces by itself, an object of the whole cluster has its release's namespace in its name, and values need no config map. */
const PLANE = [/^Namespace isthmus-plane: only in kustomize$/];
const AGENT = [
  /^Namespace isthmus-agent: only in kustomize$/,
  /^ConfigMap isthmus-agent agent: only in kustomize$/,
  /^ClusterRoleBinding isthmus:token-review: only in kustomize$/,
  /^ClusterRoleBinding isthmus-agent:agent-token-review: only in the chart$/,
  /^Deployment isthmus-agent agent .*\/args\/--proxy-server-host: "\$\(PROXY_SERVER_HOST\)" \| "hub.isthmus-plane.svc"$/,
  /^Deployment isthmus-agent agent .*\/args\/--proxy-server-port: "\$\(PROXY_SERVER_PORT\)" \| "8091"$/,
  /^Deployment isthmus-agent agent .*\/env\/PROXY_SERVER_(HOST|PORT)\/.*: ".*" \| undefined$/,
];
const ONE_CLUSTER = [
  /^NetworkPolicy isthmus-plane operators(-out)? metadata\/labels\/app.kubernetes.io\/part-of: undefined \| "isthmus"$/,
  /^ClusterRoleBinding isthmus:hub-token-review: only in kustomize$/,
  /^ConfigMap isthmus-plane hub-kubeconfig metadata\/labels\/app.kubernetes.io\/part-of: undefined \| "isthmus"$/,
  /^ClusterRoleBinding isthmus-plane:plane-token-review: only in the chart$/,
  /^Deployment isthmus-plane hub .*\/kubeconfig\/projected\/sources\/0\/configMap\/name: "hub-kubeconfig-\w+" \| "hub-kubeconfig"$/,
];

/** Each difference must be known, and each known one must be there. */
function assertDifferences(found: readonly string[], known: readonly RegExp[]): void {
  const fresh = found.filter((difference) => !known.some((pattern) => pattern.test(difference)));
  assert.deepEqual(fresh, [], 'kustomize | chart');
  const gone = known.filter((pattern) => !found.some((difference) => pattern.test(difference)));
  assert.deepEqual(gone, [], 'differences that are no more');
}

test('the chart installs what kustomize does, but for listed differences', { skip: skip || noKubectl }, async () => {
  const alone = { networkPolicies: { defaultDeny: true } };
  const [plane, agent] = [await renderFor('plane', alone), await renderFor('agent', alone)];
  assertDifferences(differences(kustomize('k8s/base/plane'), plane), PLANE);
  assertDifferences(differences(kustomize('k8s/base/agent'), agent), AGENT);
  const inOne = [...(await renderFor('plane', { ...alone, oneCluster: true, operators: true })), ...agent];
  assertDifferences(differences(kustomize('k8s/base'), inOne), [...PLANE, ...AGENT, ...ONE_CLUSTER]);
});

test('an agent on each node, and the deletion cost of agents, are those of the components', {
  skip: skip || noKubectl,
}, async () => {
  const alone = { networkPolicies: { defaultDeny: true } };
  const everywhere = await renderFor('agent', { ...alone, agent: { kind: 'DaemonSet' } });
  const known = AGENT.map((pattern) => new RegExp(pattern.source.replace('^Deployment', '^DaemonSet')));
  assertDifferences(differences(composed('base/agent', 'components/node-local'), everywhere), known);
  const counting = await renderFor('agent', { ...alone, agent: { deletionCost: true } });
  assertDifferences(differences(composed('base/agent', 'components/deletion-cost'), counting), [
    ...AGENT,
    /^Role(Binding)? isthmus-agent isthmus:deletion-cost metadata\/labels\/app.kubernetes.io\/part-of: undefined \| "isthmus"$/,
  ]);
});

test('helm lint finds nothing in the chart, with its own values and with each example', { skip }, async () => {
  for (const more of [[], ...EXAMPLES.map((file) => ['--values', file])]) {
    const { status, stdout, stderr } = await helm(['lint', '--strict', CHART, ...KUBERNETES, ...more]);
    assert.equal(status, 0, stdout + stderr);
  }
});

test('an API server knows every field of every object, and the other kinds are those of known operators', {
  skip,
}, async () => {
  for (const file of EXAMPLES) {
    const { component } = example(file);
    const { stdout } = await tryRender(example(file), NAMESPACES[component] as string);
    assert.deepEqual(await readAsApiServer('decode', stdout), [], file);
  }
  const wrong = 'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: [], clusterIP: 1}\n';
  const [line] = await readAsApiServer('decode', wrong);
  assert.match(line ?? '', /unknown field "spec.port"|cannot unmarshal number/);
  const monitor =
    'apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\nspec: {selectors: {}}\n';
  assert.match((await readAsApiServer('decode', monitor)).join(), /unknown field "spec.selectors"/);
});

test('chart, programs and image have one version', () => {
  const { version } = readManifest<{ version: string }>('package.json');
  const chart = readManifest<{ version: string; appVersion: string }>('k8s/chart/Chart.yaml');
  assert.deepEqual([chart.version, chart.appVersion], [version, version]);
});

interface Schema {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: unknown;
  readonly definitions?: Readonly<Record<string, Schema>>;
}

const schema = JSON.parse(readFileSync(`${CHART}/values.schema.json`, 'utf8')) as Schema;

/** What Helm and charts that have this one as a dependency put into its values. */
const OF_UMBRELLAS = new Set(['global', 'enabled', 'tags']);

test('the schema has exactly the values of values.yaml', () => {
  const compare = (at: string, given: Schema, value: unknown): void => {
    const { properties, additionalProperties } = given.$ref ? resolve(given.$ref) : given;
    if (!properties || typeof value !== 'object' || value === null) return;
    assert.equal(additionalProperties, false, `${at}: other values are refused`);
    const names = Object.keys(properties).filter((name) => at !== 'values' || !OF_UMBRELLAS.has(name));
    // What is empty by default may be filled with what its definition says.
    if (Object.keys(value).length > 0) assert.deepEqual(Object.keys(value).sort(), names.sort(), at);
    for (const [name, member] of Object.entries(value)) compare(`${at}.${name}`, properties[name] as Schema, member);
  };
  compare('values', schema, readManifest('k8s/chart/values.yaml'));
});

function resolve(reference: string): Schema {
  return schema.definitions?.[reference.split('/').at(-1) as string] as Schema;
}

test('values that do not exist or contradict each other are refused, by their names', { skip }, async () => {
  const refused: [Readonly<Record<string, unknown>>, RegExp][] = [
    [{ gateways: {} }, /additional properties 'gateways' not allowed/],
    [{ gateway: { replica: 3 } }, /at '\/gateway': additional properties 'replica' not allowed/],
    [{ component: 'both' }, /at '\/component': value must be one of 'plane', 'agent', 'server'/],
    [{ hub: { extraArgs: ['-v'] } }, /at '\/hub\/extraArgs\/0': '-v' does not match pattern/],
    [{ redis: { url: 'http://redis' } }, /at '\/redis\/url'/],
    [{ sizing: { tunnels: 0 } }, /at '\/sizing\/tunnels': minimum: got 0, want 1/],
    [{ redis: { passwordKey: '' } }, /redis\.passwordKey is empty/],
    [{ redis: { url: 'redis://r', tlsSecret: 'r' } }, /redis\.url does not begin with rediss/],
    [{ redis: { url: 'rediss://r', clientCertificate: true } }, /clientCertificate is set without redis\.tlsSecret/],
    [{ tenants: { secrets: ['a'] } }, /tenants\.secrets is set without tenants\.configMap/],
    [{ tenants: { configMap: 'a', sync: { enabled: true } } }, /leave tenants\.configMap empty/],
    [
      { gateway: { service: { tlsRoute: { hostnames: ['a.example'] } } } },
      /of the Service gateway is set without tlsRoute.parentRefs/,
    ],
    [{ tenants: { configMap: 'a' } }, /set agentTokens.enabled to false/],
    [{ component: 'agent', tenants: { sync: { enabled: true } } }, /an agent has no tenants/],
    [{ certManager: { enabled: true } }, /certManager\.callers\.issuer is empty/],
    [{ component: 'agent', agent: { kind: 'DaemonSet', replicas: 3 } }, /agent\.kind is DaemonSet/],
    [{ admissionPolicy: { enabled: true } }, /enable it in the release of the component agent/],
  ];
  for (const [values, message] of refused) {
    const { status, stderr } = await tryRender(values, 'isthmus-plane');
    assert.notEqual(status, 0, JSON.stringify(values));
    assert.match(stderr, message);
  }
});

test('the chart is a dependency of others, twice, with condition, tags and global values', {
  skip,
}, async (context) => {
  const umbrella = mkdtempSync(join(tmpdir(), 'isthmus-umbrella-'));
  context.after(() => rmSync(umbrella, { recursive: true }));
  cpSync(CHART, join(umbrella, 'charts', 'isthmus'), { recursive: true });
  // Helm 4 finds a chart strange that has none.
  mkdirSync(join(umbrella, 'templates'));
  const { version } = readManifest<{ version: string }>('k8s/chart/Chart.yaml');
  const dependencies = ['plane', 'agent'].map((alias) => {
    return { name: 'isthmus', version, alias, condition: `${alias}.enabled`, tags: ['network'] };
  });
  const chart = { apiVersion: 'v2', name: 'umbrella', version: '1.0.0', dependencies };
  writeFileSync(join(umbrella, 'Chart.yaml'), stringify(chart));
  const values = { global: { imageRegistry: 'r' }, tags: { network: true } };
  const agent = { component: 'agent', tags: { network: true } };
  const kinds = async (enabled: boolean) => {
    const given = { ...values, plane: { enabled: true }, agent: { ...agent, enabled } };
    const deployments = (await render(given, 'isthmus-plane', umbrella)).filter(({ kind }) => kind === 'Deployment');
    return deployments.map(({ metadata }) => metadata.name).sort();
  };
  assert.deepEqual(await kinds(true), ['agent', 'gateway', 'hub', 'redis']);
  assert.deepEqual(await kinds(false), ['gateway', 'hub', 'redis']);
  const { status, stdout, stderr } = await helm(
    ['lint', '--strict', umbrella, ...KUBERNETES, '--values', '-'],
    stringify(values),
  );
  assert.equal(status, 0, stdout + stderr);
});

test('the rules are the alerts of k8s/monitoring, and pods are found as its scrape configuration finds them', {
  skip,
}, async () => {
  const objects = await renderFor('plane', {
    monitoring: { podMonitor: { enabled: true, labels: { release: 'prometheus' } }, rules: { enabled: true } },
  });
  const rules = objects.find(({ kind }) => kind === 'PrometheusRule')?.spec.groups as { rules: unknown[] }[];
  assert.deepEqual(
    rules.flatMap((group) => group.rules),
    alerts,
  );
  const runbookUrl = 'https://wiki.example/isthmus/';
  const linked = await renderFor('plane', { monitoring: { rules: { enabled: true, runbookUrl } } });
  const groups = linked.find(({ kind }) => kind === 'PrometheusRule')?.spec.groups as { rules: typeof alerts }[];
  assert.deepEqual(
    groups.flatMap((group) => group.rules),
    alerts.map(({ annotations, ...alert }) => {
      return { ...alert, annotations: { ...annotations, runbook_url: `${runbookUrl}${alert.alert}` } };
    }),
  );
  const monitor = objects.find(({ kind }) => kind === 'PodMonitor') as Manifest & { metadata: { labels: unknown } };
  assert.equal((monitor.metadata.labels as Record<string, string>).release, 'prometheus');
  const scrape = readManifest<{ scrape_configs: [{ relabel_configs: Record<string, unknown>[] }] }>(
    'k8s/monitoring/scrape.yaml',
  );
  const relabelings = scrape.scrape_configs[0].relabel_configs.filter(({ target_label }) => target_label);
  assert.deepEqual(
    monitor.spec.podMetricsEndpoints[0].relabelings,
    relabelings.map(({ source_labels, target_label }) => ({ sourceLabels: source_labels, targetLabel: target_label })),
  );
  assert.deepEqual(monitor.spec.selector.matchExpressions[0].values, ['backend-hub', 'frontend-gw']);
});

test('an autoscaler asks for metrics that the adapter makes of ones that programs have', { skip }, async () => {
  const autoscaling = { enabled: true, minReplicas: 2, maxReplicas: 4, tunnels: 300, dialsPerSecond: 50 };
  const objects = await renderFor('agent', { agent: { autoscaling } });
  const scaler = objects.find(({ kind }) => kind === 'HorizontalPodAutoscaler') as Manifest;
  const deployment = objects.find(({ kind }) => kind === 'Deployment') as Manifest;
  assert.equal('replicas' in deployment.spec, false, 'an upgrade must not set the replicas back');
  const { rules } = readManifest<{ rules: { name: { as: string }; metricsQuery: string }[] }>(
    'k8s/monitoring/adapter.yaml',
  );
  const asked = scaler.spec.metrics.map(({ pods }: { pods: { metric: { name: string } } }) => pods.metric.name);
  assert.deepEqual(
    asked,
    rules.map(({ name }) => name.as),
  );
  const families = readFileSync(`${root}docs/METRICS.md`, 'utf8');
  for (const { metricsQuery } of rules) {
    const [family = ''] = /isthmus_\w+/.exec(metricsQuery) ?? [];
    assert.match(families, new RegExp(`\`${family.replace(/_count$/, '')}[\`{]`), family);
  }
});
