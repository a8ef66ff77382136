import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CertificateAuthority } from '@isthmus/certificates';
import { getOrPut } from '@isthmus/runtime';
import { helmProgram } from '../k8s/chart.ts';
import { clusterApiDefinition, clusterctl } from '../sync/kubernetes-api.ts';
import { anyDefinition, ofClusterApi, secretOf } from '../sync/objects.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import { removeApplied } from './helm.ts';
import { apply, kubectl, rolledOut } from './kubectl.ts';
import { allowPods, asOperator, HOLDER, hosterCommands, SERVER } from './recipe.ts';
import { endStatic, restartApiServer } from './static-pods.ts';
import type { Check, Ground, Plan } from './step.ts';

const [PLANE, AGENTS] = ['isthmus-plane', 'isthmus-agent'];
const [CLUSTERCTL, DEFINITIONS] = ['clusterctl', 'cluster-api.json'];
const DAY_MS = 86_400_000;
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
export const fromManagementCluster: Plan = async (ground) => {
  const last = await walk(ground);
  const first: Check = {
    name: 'the tenth command',
    async run({ directory }) {
      const said = await asOperator(directory, last);
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
  return [first, list, ...OPERATIONS, METRICS];
};

/** All commands but the last, which is returned. */
async function walk({ directory }: Ground): Promise<string> {
  await allowPods();
  await removeApplied(AGENTS);
  await managementCluster(directory);
  await checkout(directory);
  const commands = hosterCommands();
  for (const command of commands.slice(0, -1)) {
    await asOperator(directory, command);
    if (command.startsWith('helm install plane')) {
      await issueCertificates();
      await resolveNames();
    }
    if (command.startsWith('kubectl patch')) await rollOut();
    if (command.startsWith('helm install agent')) await resolveForAgents();
  }
  for (const name of [SERVER, HOLDER]) await endStatic(name);
  for (const name of ['gateway', 'hub']) await rolledOut(PLANE, `deployment/${name}`);
  await rolledOut(AGENTS, 'deployment/agent');
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
  await apply(
    ...ofClusterApi(file('admin.conf')),
    secretOf('acme', 'prod-ca', { 'tls.crt': file('pki/ca.crt'), 'tls.key': file('pki/ca.key') }, owned),
    secretOf('acme', 'prod-sa', { 'tls.crt': file('pki/sa.pub'), 'tls.key': file('pki/sa.key') }, owned),
  );
}

/** What the recipe says to change first: how much there is for one node to hold. And two more programs. */
async function checkout(directory: string): Promise<void> {
  const values = 'k8s/chart/examples/plane-of-a-management-cluster.yaml';
  await asOperator(
    directory,
    `ln -s ${join(directory, CLUSTERCTL)} bin/clusterctl
ln -s ${await helmProgram()} bin/helm
sed -i 's/^sizing: .*/sizing: {clusters: 2, agents: 4, tunnels: 100}/' ${values}
grep -q 'tunnels: 100}' ${values}`,
  );
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
    await apply(secretOf(PLANE, spec.secretName, values, {}));
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
async function rollOut(): Promise<void> {
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
  await restartApiServer(({ spec: { containers, volumes } }) => {
    const [container] = containers;
    for (const { name, value } of extraArgs) {
      const others = container.command.filter((flag) => !flag.startsWith(`--${name}=`));
      container.command = [...others, `--${name}=${value}`];
    }
    for (const { name, hostPath: path, mountPath, readOnly } of extraVolumes) {
      volumes?.push({ name, hostPath: { path } });
      container.volumeMounts?.push({ name, mountPath, readOnly });
    }
  });
}
