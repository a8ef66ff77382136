import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { root } from '../k8s/manifests.ts';
import { read } from './files.ts';
import { type DiscoveredPod, healthPortOf, OPERATORS } from './operators.ts';
import { noPromtool, promtool } from './promtool.ts';

const ADDRESS = '192.0.2.10';

/** What is scraped of each manifest: the job, and the port of the health server. */
const SCRAPED: Readonly<Record<string, readonly [job: string, port: number]>> = {
  'k8s/base/plane/gateway.yaml': ['frontend-gw', 8092],
  'k8s/base/plane/hub.yaml': ['backend-hub', 8092],
  'k8s/base/agent/agent.yaml': ['proxy-agent', 8093],
  'k8s/overlays/control-plane-node/node/proxy-server.yaml': ['proxy-server', 8092],
  'k8s/overlays/control-plane-node/node/proxy-socket.yaml': ['isthmus-hold', 8096],
  'k8s/recipes/kamaji/shared-plane.yaml': ['isthmus-hold', 8096],
  'k8s/recipes/kubeadm-ha/node/konnectivity-server.yaml': ['proxy-server', 8134],
  'k8s/recipes/kubeadm-ha/plane/konnectivity-server.yaml': ['proxy-server', 8134],
  'k8s/recipes/kubernetes-io/node/konnectivity-server.yaml': ['proxy-server', 8134],
  'k8s/recipes/kubernetes-io/konnectivity-agent.yaml': ['proxy-agent', 8134],
  'k8s/recipes/k0s/konnectivity-agent.yaml': ['proxy-agent', 8093],
};

type Labels = Readonly<Record<string, string>>;

interface Target {
  readonly targets: readonly [string];
  readonly labels: Labels;
}

/** Returns the pod of a manifest: for Kamaji's, what it adds to the API server's. */
function podOf(path: string): DiscoveredPod {
  const objects = parseAllDocuments(readFileSync(join(root, path), 'utf8')).map((document) => document.toJS());
  const object = objects.find(({ spec }) => spec?.containers ?? spec?.template ?? spec?.controlPlane);
  if (object.spec.controlPlane)
    return { metadata: {}, spec: { containers: object.spec.controlPlane.deployment.additionalContainers } };
  return object.kind === 'Pod' ? object : object.spec.template;
}

/** Returns the targets that Prometheus finds for a pod before it relabels them: one for each port of a container, or one without. */
function discovered(name: string, { metadata, spec }: DiscoveredPod): Target[] {
  const meta = (what: string, values: Labels = {}) =>
    Object.entries(values).map(([name, value]) => [
      `__meta_kubernetes_pod_${what}_${name.replaceAll(/[^a-zA-Z0-9]/g, '_')}`,
      value,
    ]);
  const labels = {
    __meta_kubernetes_namespace: 'somewhere',
    __meta_kubernetes_pod_name: name,
    __meta_kubernetes_pod_ip: ADDRESS,
    ...Object.fromEntries([...meta('label', metadata.labels), ...meta('annotation', metadata.annotations)]),
  };
  return spec.containers.flatMap(({ name, ports = [] }): Target[] => {
    const container = { ...labels, __meta_kubernetes_pod_container_name: name };
    if (ports.length === 0) return [{ targets: [ADDRESS], labels: container }];
    return ports.map(({ name = '', containerPort }) => ({
      targets: [`${ADDRESS}:${containerPort}`],
      labels: { ...container, __meta_kubernetes_pod_container_port_name: name },
    }));
  });
}

/** Returns the distinct targets that a job of the configuration makes of others, by Prometheus' own relabeling. */
function relabeled(job: { readonly job_name: string; readonly relabel_configs: unknown }, targets: readonly Target[]) {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-scrape-'));
  try {
    const [config, found] = ['config.yaml', 'found.json'].map((name) => join(directory, name)) as [string, string];
    writeFileSync(found, JSON.stringify(targets));
    const { job_name, relabel_configs } = job;
    writeFileSync(
      config,
      stringify({ scrape_configs: [{ job_name, relabel_configs, file_sd_configs: [{ files: [found] }] }] }),
    );
    const { status, stdout, output } = promtool(['check', 'service-discovery', '--timeout=2s', config, job_name]);
    assert.equal(status, 0, output);
    const results = JSON.parse(stdout) as { readonly labels: Labels }[];
    const kept = results.map(({ labels }) => labels).filter((labels) => Object.keys(labels).length > 0);
    return [...new Map(kept.map((labels) => [JSON.stringify(labels), labels])).values()];
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('Prometheus finds the health port of every program of every recipe once, as the job that alerts go by', {
  skip: noPromtool,
}, () => {
  const { scrape_configs: jobs } = parse(read('scrape.yaml'));
  const recipes = Object.entries(SCRAPED).map(([path, scraped]) => [path, podOf(path), ...scraped] as const);
  const operators = OPERATORS.map(([name, pod, ...of]) => [name, pod, of[1], healthPortOf(...of)] as const);
  const pods = [...recipes, ...operators];
  const all = pods.flatMap(([name, pod]) => discovered(name, pod));
  const found = (jobs as Parameters<typeof relabeled>[0][]).flatMap((job) => relabeled(job, all));
  const told = found.map(({ instance, namespace, job, __address__ }) => [instance, namespace, job, __address__]);
  const wanted = pods.map(([name, , job, port]) => [name, 'somewhere', job, `${ADDRESS}:${port}`]);
  assert.deepEqual(told.sort(), wanted.sort());
});
