import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parse, parseAllDocuments } from 'yaml';

/** The repository's root directory. */
export const root = fileURLToPath(new URL('../../../', import.meta.url));
/** Ends what hangs, and judges no speed. */
const RUN_MS = 5 * 60_000;

export type Labels = Readonly<Record<string, string>>;

export interface Selector {
  readonly matchLabels?: Labels;
  readonly matchExpressions?: readonly { readonly key: string; readonly operator: string; readonly values: string[] }[];
}

export interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string | number };
}

export interface Container {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly args: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly valueFrom?: { readonly fieldRef?: { readonly fieldPath: string } };
  }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly startupProbe?: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly resources: { readonly requests: Labels; readonly limits: Labels };
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
}

export interface PodSpec {
  readonly nodeSelector?: Labels;
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly terminationGracePeriodSeconds: number;
  readonly automountServiceAccountToken?: boolean;
  readonly serviceAccountName?: string;
  readonly topologySpreadConstraints?: readonly { readonly labelSelector: Selector }[];
  readonly volumes: readonly Volume[];
}

export interface Volume {
  readonly name: string;
  readonly secret?: { readonly secretName: string };
  readonly configMap?: { readonly name: string };
  readonly hostPath?: { readonly path: string; readonly type: string };
  readonly projected?: unknown;
  readonly emptyDir?: unknown;
}

export interface Peer {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: Selector;
  readonly ipBlock?: unknown;
}

export interface Rule {
  readonly from?: readonly Peer[];
  readonly to?: readonly Peer[];
  readonly ports?: readonly { readonly protocol: string; readonly port: number; readonly endPort?: number }[];
}

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly data?: Labels;
  // The shape depends on the kind: each use says which one it reads.
  // biome-ignore lint/suspicious/noExplicitAny: typing every kind of Kubernetes would be larger than the tests
  readonly spec: any;
  // biome-ignore lint/suspicious/noExplicitAny: as above
  readonly egressSelections?: any;
}

/** A pod as the cluster runs it: from the template of a Deployment or DaemonSet, or as a static pod. */
export interface Workload {
  readonly name: string;
  readonly namespace: string;
  readonly labels: Labels;
  readonly pod: PodSpec;
  readonly container: Container;
  readonly flags: ReadonlyMap<string, string>;
}

/** Why this machine cannot run `kubectl kustomize`, or false. */
export const noKubectl: string | false =
  spawnSync('kubectl', ['version', '--client'], { timeout: RUN_MS }).status === 0 ? false : 'kubectl is not installed';

export function kustomize(directory: string): Manifest[] {
  const run = spawnSync('kubectl', ['kustomize', `${root}${directory}`], { encoding: 'utf8', timeout: RUN_MS });
  if (run.status !== 0) throw new Error(`kubectl kustomize ${directory}: ${run.stderr}`);
  return parseAllDocuments(run.stdout).map((document) => {
    if (document.errors[0]) throw document.errors[0];
    return document.toJS() as Manifest;
  });
}

/** Renders what has these resources and components: directories in `k8s`. */
export function composed(resource: string, ...components: readonly string[]): Manifest[] {
  const dir = mkdtempSync(join(root, 'k8s/.composed-'));
  try {
    const all = { resources: [`../${resource}`], components: components.map((name) => `../${name}`) };
    writeFileSync(join(dir, 'kustomization.yaml'), JSON.stringify(all));
    return kustomize(relative(root, dir));
  } finally {
    rmSync(dir, { recursive: true });
  }
}

export function readManifest<T = Manifest>(path: string): T {
  return parse(readFileSync(`${root}${path}`, 'utf8')) as T;
}

export function workloads(manifests: readonly Manifest[]): Workload[] {
  return manifests
    .filter(({ kind }) => kind === 'Deployment' || kind === 'DaemonSet')
    .map(({ metadata, spec }) => workload(metadata, spec.template.metadata.labels, spec.template.spec));
}

export function staticPod(manifest: Manifest & { metadata: { labels?: Labels } }): Workload {
  return workload(manifest.metadata, manifest.metadata.labels ?? {}, manifest.spec);
}

function workload(metadata: Manifest['metadata'], labels: Labels, pod: PodSpec): Workload {
  const container = pod.containers[0] as Container;
  const flags = new Map(container.args.map((arg) => flagOf(arg)));
  return { name: metadata.name, namespace: metadata.namespace ?? '', labels, pod, container, flags };
}

function flagOf(arg: string): [string, string] {
  const match = /^--([a-z-]+)=(.*)$/.exec(arg);
  return match ? [match[1] as string, match[2] as string] : [arg, ''];
}

export function selects(selector: Selector, labels: Labels): boolean {
  const byLabel = Object.entries(selector.matchLabels ?? {}).every(([key, value]) => labels[key] === value);
  const byExpression = (selector.matchExpressions ?? []).every(
    ({ key, operator, values }) => operator === 'In' && values.includes(labels[key] ?? ''),
  );
  return byLabel && byExpression;
}

/** Returns the number of a port that is given by name or by number. */
export function portNumber(container: Container, port: string | number): number | undefined {
  if (typeof port === 'number') return port;
  return container.ports.find(({ name }) => name === port)?.containerPort;
}
