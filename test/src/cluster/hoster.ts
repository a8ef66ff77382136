import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CertificateAuthority } from '@isthmus/certificates';
import { getOrPut } from '@isthmus/runtime';
import { parse, stringify } from 'yaml';
import { helmProgram } from '../k8s/chart.ts';
import { clusterApiDefinition, clusterctl } from '../sync/kubernetes-api.ts';
import { anyDefinition, ofClusterApi, secretOf } from '../sync/objects.ts';
import type { Check } from './checks/check.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import type { Ground, Plan } from './ground.ts';
import { removeApplied } from './helm.ts';
import { apply, endStatic, type Kubernetes, kubectl } from './kubernetes.ts';
import { allowPods, HOLDER, hosterCommands, K8S, paste, rolledOut, SERVER } from './recipe.ts';

const [PLANE, AGENTS] = ['isthmus-plane', 'isthmus-agent'];
const [CLUSTERCTL, DEFINITIONS] = ['clusterctl', 'cluster-api.json'];
const DAY_MS = 86_400_000;
const COMMAND_MS = 300_000;
/** What the page's names lead to. */
const NAMES = { 'gateways.example.com': 'gateway', 'hubs.example.com': 'hub' };
/** The command that the page says to list tenants with. */
const LIST = ['exec', '-n', PLANE, 'deploy/gateway', '-c', 'frontend-gw', '--', 'isthmus', 'tenants'];

/** Puts what comes from Cluster API where a cluster without a network finds it. */
export async function bringClusterApi(directory: string): Promise<void> {
  cpSync(await clusterctl(), join(directory, CLUSTERCTL));
  const definitions = [
    await clusterApiDefinition('cluster.x-k8s.io_clusters'),
    await clusterApiDefinition('controlplane.cluster.x-k8s.io_kubeadmcontrolplanes'),
  ];
  writeFileSync(join(directory, DEFINITIONS), JSON.stringify(definitions));
}

/**
 * docs/TENANTS.md, "From a management cluster", word for word, in a cluster that manages itself. cert-manager, the controllers of Cluster API, a
 * load balancer and the DNS of its names are played.
 */
export function fromManagementCluster(): Plan {
  let last = '';
  const first: Check = {
    name: 'the tenth command',
    async run({ directory }) {
      const said = await inCheckout(directory, last);
      assert.match(said, /^isthmus \d+\.\d+\.\d+/);
      return said.trim().split('\n')[0] ?? '';
    },
  };
  const list: Check = {
    name: 'isthmus tenants',
    async run() {
      const said = await kubectl(LIST);
      const [line = ''] = /^acme-prod .*$/m.exec(said) ?? [];
      assert.match(line, /Cluster acme\/prod/, said);
      return line.replaceAll(/ +/g, ' ');
    },
  };
  return {
    async prepare(ground) {
      last = await walk(ground);
    },
    steps: [
      first,
      list,
      ...OPERATIONS.filter(({ name }) => ['logs', 'exec', 'aggregated API', 'webhook admits'].includes(name)),
      ...METRICS,
    ],
  };
}

/** All commands but the last, which is returned. */
async function walk({ kubernetes, directory }: Ground): Promise<string> {
  await allowPods();
  await removeApplied(AGENTS);
  await managementCluster(directory);
  await checkout(directory);
  const commands = hosterCommands();
  for (const command of commands.slice(0, -1)) {
    await inCheckout(directory, command);
    if (command.startsWith('helm install plane')) {
      await issueCertificates();
      await resolveNames();
    }
    if (command.startsWith('kubectl patch')) await rollOut(kubernetes);
    if (command.startsWith('helm install agent')) await resolveForAgents();
  }
  for (const name of [SERVER, HOLDER]) await endStatic(name);
  for (const name of ['gateway', 'hub']) await rolledOut(PLANE, name);
  await rolledOut(AGENTS, 'agent');
  return commands.at(-1) ?? '';
}

/** The objects that Cluster API has of a cluster, which is this one. */
async function managementCluster(directory: string): Promise<void> {
  const file = (path: string) => readFileSync(`/etc/kubernetes/${path}`, 'utf8');
  const owned = { labels: { 'cluster.x-k8s.io/cluster-name': 'prod' } };
  const certificates = anyDefinition('cert-manager.io', 'Certificate', 'certificates', 'v1');
  const definitions = [certificates, ...JSON.parse(readFileSync(join(directory, DEFINITIONS), 'utf8'))];
  for (const definition of definitions)
    await kubectl(['apply', '--server-side', '-f', '-'], { input: JSON.stringify(definition) });
  await kubectl(['wait', '--for=condition=Established', 'crd', '--all']);
  for (const object of [
    ...ofClusterApi(file('admin.conf')),
    secretOf('acme', 'prod-ca', { 'tls.crt': file('pki/ca.crt'), 'tls.key': file('pki/ca.key') }, owned),
    secretOf('acme', 'prod-sa', { 'tls.crt': file('pki/sa.pub'), 'tls.key': file('pki/sa.key') }, owned),
  ])
    await apply(JSON.stringify(object));
}

/** A checkout with what the recipe says to change first: how much there is for one node to hold. */
async function checkout(directory: string): Promise<void> {
  const [bin, k8s] = [join(directory, 'operator/bin'), join(directory, 'operator/k8s')];
  mkdirSync(bin, { recursive: true });
  cpSync(K8S, k8s, { recursive: true });
  const values = join(k8s, 'chart/examples/plane-of-a-management-cluster.yaml');
  const text = readFileSync(values, 'utf8');
  const small = text.replace(/^sizing: .*$/m, 'sizing: {clusters: 2, agents: 4, tunnels: 100}');
  assert.notEqual(small, text);
  writeFileSync(values, small);
  symlinkSync(join(directory, CLUSTERCTL), join(bin, 'clusterctl'));
  symlinkSync(await helmProgram(), join(bin, 'helm'));
}

function inCheckout(directory: string, command: string): Promise<string> {
  const cwd = join(directory, 'operator');
  const PATH = `${join(cwd, 'bin')}:${process.env.PATH}`;
  const env = {
    PATH,
    KUBECONFIG: '/etc/kubernetes/admin.conf',
    XDG_CONFIG_HOME: cwd,
    CLUSTERCTL_DISABLE_VERSIONCHECK: 'true',
  };
  return paste(command, { cwd, env, deadline: COMMAND_MS });
}

/** What cert-manager does. */
async function issueCertificates(): Promise<void> {
  const { items } = JSON.parse(await kubectl(['get', 'certificates', '-n', PLANE, '-o=json']));
  const issuers = new Map<string, Promise<CertificateAuthority>>();
  for (const { spec } of items) {
    const { name } = spec.issuerRef;
    const issuer = await getOrPut(issuers, name, () => CertificateAuthority.create(name, DAY_MS));
    const hosts = spec.dnsNames.map((value: string) => ({ type: 'dns' as const, value }));
    const uses = (['client', 'server'] as const).filter((use) => spec.usages.includes(`${use} auth`));
    const { cert, key } = await issuer.issue({ commonName: '', validMs: DAY_MS, hosts, uses });
    const values = { 'ca.crt': issuer.cert, 'tls.crt': cert, 'tls.key': key };
    await apply(JSON.stringify(secretOf(PLANE, spec.secretName, values, {})));
  }
}

/** By name: an address of the Service behind it. */
async function addresses(): Promise<[address: string, name: string][]> {
  const of = async (service: string) =>
    kubectl(['-n', PLANE, 'get', 'service', service, '-o=jsonpath={.spec.clusterIP}']);
  return Promise.all(
    Object.entries(NAMES).map(async ([name, service]) => [await of(service), name] as [string, string]),
  );
}

/** What DNS does for the API server. */
async function resolveNames(): Promise<void> {
  const lines = (await addresses()).map((pair) => `${pair.join(' ')}\n`);
  writeFileSync('/etc/hosts', readFileSync('/etc/hosts', 'utf8') + lines.join(''));
}

/** And for agents. */
async function resolveForAgents(): Promise<void> {
  const hostAliases = (await addresses()).map(([ip, name]) => ({ ip, hostnames: [name] }));
  const patch = JSON.stringify({ spec: { template: { spec: { hostAliases } } } });
  await kubectl(['-n', AGENTS, 'patch', 'deployment', 'agent', '-p', patch]);
}

/** What the controllers of Cluster API do with a KubeadmControlPlane that has changed. */
async function rollOut(kubernetes: Kubernetes): Promise<void> {
  const get = async (kind: string, name: string) =>
    JSON.parse(await kubectl(['get', '-n', 'acme', kind, name, '-o=json']));
  const { spec } = await get('kubeadmcontrolplane', 'prod-control-plane');
  const { files, clusterConfiguration } = spec.kubeadmConfigSpec;
  for (const { path, content, contentFrom } of files) {
    const { name, key } = contentFrom?.secret ?? {};
    const bytes = content ?? Buffer.from((await get('secret', `${name}`)).data[`${key}`], 'base64');
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, bytes);
  }
  const { extraArgs, extraVolumes } = clusterConfiguration.apiServer;
  await kubernetes.replaceApiServer((manifest) => {
    const pod = parse(manifest);
    const [container] = pod.spec.containers;
    for (const { name, value } of extraArgs) {
      const others = container.command.filter((flag: string) => !flag.startsWith(`--${name}=`));
      container.command = [...others, `--${name}=${value}`];
    }
    for (const { name, hostPath: path, mountPath, readOnly } of extraVolumes) {
      pod.spec.volumes.push({ name, hostPath: { path } });
      container.volumeMounts.push({ name, mountPath, readOnly });
    }
    return stringify(pod);
  });
}
