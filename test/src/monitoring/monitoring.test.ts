import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { getDotPath, safeParse } from 'valibot';
import { stringify } from 'yaml';
import { kustomize, noKubectl, portNumber, readManifest, root, staticPod } from '../k8s/manifests.ts';
import { deployed, server, socket } from '../k8s/rendered.ts';
import { alerts, dashboard, panels, questions, read, yamlFiles } from './files.ts';
import { noPromtool, promtool } from './promtool.ts';
import { dashboardSchema } from './schema.ts';

/** Labels that a scrape or a histogram adds. */
const ADDED = ['job', 'instance', 'le'];
/** Metrics of the process itself, from prom-client. */
const OF_PROCESS = ['process_cpu_seconds_total', 'process_resident_memory_bytes'];

/** Returns the samples of every family in docs/METRICS.md, which is generated from the code, with their labels. */
function knownSamples(): Map<string, readonly string[]> {
  const page = readFileSync(join(root, 'docs/METRICS.md'), 'utf8');
  const known = new Map<string, readonly string[]>(OF_PROCESS.map((name) => [name, []]));
  for (const [, name = '', labels = '', type] of page.matchAll(/^- \w+ `(\w+)(?:\{([\w,]+)\})?` (\w+)/gm)) {
    const suffixes = type === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    for (const suffix of suffixes) known.set(name + suffix, labels.split(','));
  }
  return known;
}

test('every metric in an alert or a panel exists and has the labels used there', () => {
  const known = knownSamples();
  assert.ok(known.size > 60);
  for (const question of [...alerts.map(({ expr }) => expr), ...questions]) {
    const named = [...question.matchAll(/\b((?:isthmus|konnectivity|process)_\w+)(?:\{([^}]*)\})?/g)];
    assert.ok(named.length > 0, question);
    for (const [, name = '', selector = ''] of named) {
      const labels = known.get(name);
      assert.ok(labels, `${name} is in no page: ${question}`);
      for (const [, label = ''] of selector.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)) {
        assert.ok([...labels, ...ADDED].includes(label), `${name} has no label ${label}`);
      }
    }
  }
});

test('every alert has a severity, a summary and a runbook, and the page lists those that are critical', () => {
  const readme = read('README.md');
  for (const { alert, labels, annotations } of alerts) {
    assert.match(labels.severity, /^(critical|warning)$/, alert);
    assert.ok(annotations.summary.length > 20 && annotations.runbook.length > 150, alert);
    assert.equal(readme.includes(`| \`${alert}\` | `), labels.severity === 'critical', alert);
  }
});

test('every alert has a test in which it fires and one in which it does not', () => {
  const tests = yamlFiles('tests').map(read).join('');
  for (const { alert } of alerts) {
    const asked = [
      ...tests.matchAll(new RegExp(`alertname="${alert}", alertstate="firing"}\\n.*\\n +exp_samples:(.*)`, 'g')),
    ];
    assert.ok(
      asked.some(([, samples]) => samples === ''),
      `${alert} never fires`,
    );
    assert.ok(
      asked.some(([, samples]) => samples === ' []'),
      `${alert} always fires`,
    );
  }
});

test('promtool accepts the rules, and their tests pass', { skip: noPromtool }, () => {
  for (const args of [
    ['check', 'rules', ...yamlFiles('alerts')],
    ['test', 'rules', ...yamlFiles('tests')],
  ]) {
    const { status, output } = promtool(args);
    assert.equal(status, 0, `promtool ${args.join(' ')}\n${output}`);
  }
});

test('a panel shows every metric that an alert uses', () => {
  const metrics = (exprs: readonly string[]) => new Set(exprs.join(' ').match(/\b(isthmus|konnectivity|process)_\w+/g));
  const shown = metrics(questions);
  const hidden = [...metrics(alerts.map(({ expr }) => expr))].filter((name) => !shown.has(name));
  assert.deepEqual(hidden, []);
});

test('promtool accepts every query of the dashboard', { skip: noPromtool }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-questions-'));
  try {
    const rules = questions.map((expr, index) => ({ record: `question:${index}`, expr }));
    writeFileSync(join(directory, 'rules.yaml'), stringify({ groups: [{ name: 'dashboard', rules }] }));
    const { status, output } = promtool(['check', 'rules', join(directory, 'rules.yaml')]);
    assert.equal(status, 0, output);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test("the dashboard keeps to the schema of Grafana's dashboard kind", () => {
  const { issues = [] } = safeParse(dashboardSchema, dashboard);
  assert.deepEqual(
    issues.map((issue) => `${getDotPath(issue)}: ${issue.message}`),
    [],
  );
});

test('the schema finds what Grafana would ignore, or show wrongly', () => {
  const faults = (change: (copy: typeof dashboard) => void) => {
    const copy = structuredClone(dashboard);
    change(copy);
    return safeParse(dashboardSchema, copy).issues?.length ?? 0;
  };
  const panel = (copy: typeof dashboard) => copy.panels[1] ?? assert.fail('no panel');
  assert.equal(
    faults(() => {}),
    0,
  );
  assert.equal(
    faults((copy) => Object.assign(panel(copy), { titel: 'x' })),
    1,
  );
  assert.equal(
    faults((copy) => Object.assign(panel(copy), { id: 1 })),
    1,
  );
  assert.equal(
    faults((copy) => Object.assign(panel(copy).gridPos, { w: 25 })),
    1,
  );
  assert.equal(
    faults((copy) => Object.assign(panel(copy).targets?.[0] ?? {}, { query: 'up' })),
    1,
  );
});

test('every query of the dashboard uses its variables, and the panels of tenants can show one of them', () => {
  const exprs = panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr));
  for (const expr of exprs) {
    assert.ok(expr.includes('job=~"$job",instance=~"$instance"'), expr);
    for (const [, name = '', selector = ''] of expr.matchAll(/\b(isthmus_tenant_\w+)\{([^}]*)\}/g)) {
      // What a share is a part of has no choice of tenants.
      const ofAll = name === 'isthmus_tenant_files_bad' || expr.includes('group_left');
      assert.ok(ofAll || selector.includes('tenant=~"$tenant"'), expr);
    }
  }
});

test('panels of the dashboard do not overlap, and each has a query', () => {
  const taken = new Set<string>();
  for (const {
    title,
    type,
    targets = [],
    gridPos: { x, y, w, h },
  } of panels) {
    assert.ok(type === 'row' || targets.length > 0, title);
    for (let column = x; column < x + w; column++) {
      for (let line = y; line < y + h; line++) {
        assert.ok(column < 24 && !taken.has(`${column},${line}`), title);
        taken.add(`${column},${line}`);
      }
    }
  }
});

test('rules and dashboard are rendered as config maps', { skip: noKubectl }, () => {
  const rendered = kustomize('k8s/monitoring').map(({ kind, metadata, data }) => [
    kind,
    metadata,
    Object.keys(data ?? {}),
  ]);
  const [rules, dashboard] = rendered;
  assert.equal(rendered.length, 2);
  assert.deepEqual(
    rules?.[2],
    yamlFiles('alerts').map((path) => path.slice('alerts/'.length)),
  );
  assert.deepEqual(dashboard?.[2], ['dashboard.json']);
});

test('the scrape configuration finds the pods of k8s/base, and static pods, at an address that others reach', {
  skip: noKubectl,
}, () => {
  const scrape = read('scrape.yaml');
  const nodes = ['node', 'plane'].map((folder) => `k8s/recipes/kubeadm-ha/${folder}/konnectivity-server.yaml`);
  const statics = [server, socket, ...nodes.map((path) => staticPod(readManifest(path)))];
  const pods = [...deployed, ...statics];
  for (const { name, labels, container, flags } of pods.filter((pod) => pod.name !== 'redis')) {
    assert.match(scrape, new RegExp(`regex: .*\\b${labels['app.kubernetes.io/name']}\\b`));
    const health = flags.get('health-port') ?? flags.get('health-server-port');
    assert.equal(portNumber(container, 'health'), Number(health), name);
    assert.equal(flags.get('health-server-host'), undefined, name);
    // A static pod's port is the node's: at its own address only, which is the pod's too.
    const ownAddress = flags.get('health-bind-address')?.match(/^\$\((\w+)\)$/)?.[1];
    const field = container.env?.find((variable) => variable.name === ownAddress)?.valueFrom?.fieldRef?.fieldPath;
    assert.equal(field, statics.some((pod) => pod.name === name) ? 'status.hostIP' : undefined, name);
  }
});
