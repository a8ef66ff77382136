import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { CHART, helmProgram } from '../k8s/chart.ts';
import { must } from './command.ts';
import { apply, kubectl } from './kubectl.ts';
import { leavePage } from './page.ts';
import { allowPods, EGRESS, HOLDER, isthmus, SERVER } from './recipe.ts';
import { endStatic, restartApiServer } from './static-pods.ts';
import type { Fault } from './step.ts';

const WAIT_S = 180;
/** Where the API server finds its certificate: the file that it reads names this directory. */
const IDENTITY = '/etc/kubernetes/pki/isthmus';

type Component = 'plane' | 'agent' | 'server';

/** Each component is a release of its own name, in a namespace of its own. */
const RELEASES: Readonly<Record<Component, { namespace: string; values: readonly string[] }>> = {
  plane: { namespace: 'isthmus-plane', values: ['--values', `${CHART}/examples/plane-one-cluster.yaml`] },
  agent: { namespace: 'isthmus-agent', values: ['--set', 'component=agent'] },
  server: { namespace: 'isthmus-server', values: ['--set', 'component=server,oneCluster=true,server.replicas=2'] },
};

/** Runs Helm as the cluster's administrator on a release, and waits as long as Helm does for what it made. */
async function helm(command: readonly string[], component: Component, args: readonly string[] = []): Promise<string> {
  const { namespace } = RELEASES[component];
  const options = ['--kubeconfig=/etc/kubernetes/admin.conf', '--namespace', namespace];
  const wait = ['--wait', `--timeout=${WAIT_S}s`];
  return must([await helmProgram(), ...command, ...args, ...options, ...wait], { deadline: (WAIT_S + 30) * 1000 });
}

/** Installs a component, or upgrades it to these values in place of those that were set before. */
async function install(component: Component, set = ''): Promise<void> {
  const { values } = RELEASES[component];
  await helm(['upgrade', '--install', component, CHART], component, [...values, ...(set ? ['--set', set] : [])]);
}

async function objectsOf(component: Component, selector: string): Promise<string[]> {
  const { namespace } = RELEASES[component];
  const inside = await kubectl(['-n', namespace, 'get', KINDS, '-l', selector, '-o=name']);
  const own = `${selector},app.kubernetes.io/instance=${component}`;
  const outside = await kubectl(['get', 'clusterrolebindings', '-l', own, '-o=name']);
  return `${inside}${outside}`.split('\n').filter(Boolean);
}

const KINDS =
  'deployments,daemonsets,services,configmaps,poddisruptionbudgets,networkpolicies,serviceaccounts,roles,rolebindings';

/**
 * k8s/README.md, "Helm", in the place of what was applied before: namespaces, secrets, the plane before there is any agent, agents, and an API
 * server that dials the gateways.
 */
export async function installByHelm(): Promise<void> {
  await leavePage();
  await allowPods();
  for (const component of ['plane', 'agent'] as const) {
    await namespaceOf(component);
    await removeApplied(RELEASES[component].namespace);
  }
  await apply(await isthmus(['certs', '-o', 'kubernetes']));
  await install('plane');
  await install('agent');
  await useService('plane', 'gateway');
  for (const name of [SERVER, HOLDER]) await endStatic(name);
}

/** Removes what was applied without Helm. */
export async function removeApplied(namespace: string): Promise<void> {
  await kubectl(['-n', namespace, 'delete', KINDS, '-l', 'app.kubernetes.io/part-of=isthmus', '--wait=false']);
}

/** The other component for control planes: servers in the place of the plane, and the agents' servers. */
async function serversByHelm(): Promise<void> {
  await namespaceOf('server');
  await apply(await isthmus(['certs', '-o', 'kubernetes', '--recipe', 'server']));
  await install('server');
  await install('agent', 'agent.host=server-agents.isthmus-server.svc');
  await useService('server', 'server');
}

/** Has the API server dial a Service: "Its API server" of k8s/README.md, which is for gateways and written for the first time. */
async function useService(component: Component, service: string): Promise<void> {
  const { namespace } = RELEASES[component];
  const name = `${service}.${namespace}.svc`;
  mkdirSync(IDENTITY, { recursive: true, mode: 0o700 });
  const { data } = JSON.parse(await kubectl(['-n', namespace, 'get', 'secret', 'kube-apiserver-tls', '-o=json']));
  for (const [key, text] of Object.entries(data as Record<string, string>))
    writeFileSync(`${IDENTITY}/${key}`, Buffer.from(text, 'base64'));
  const address = await kubectl(['-n', namespace, 'get', 'service', service, '-o=jsonpath={.spec.clusterIP}']);
  const hosts = readFileSync('/etc/hosts', 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.endsWith('.svc'));
  writeFileSync('/etc/hosts', `${[...hosts, `${address} ${name}`].join('\n')}\n`);
  const ours = readFileSync(EGRESS_OF_GATEWAYS, 'utf8');
  writeFileSync(EGRESS, ours.replace('gateway.isthmus-plane.svc', name));
  await restartApiServer();
}

const EGRESS_OF_GATEWAYS = `${CHART}/../overlays/control-plane-node/node/egress-selector-configuration-http-connect.yaml`;

async function namespaceOf(component: Component): Promise<void> {
  const { namespace: name } = RELEASES[component];
  const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' };
  await apply({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, labels } });
}

/** What `helm upgrade`, `rollback` and `uninstall` do to releases that callers use. */
export const OF_HELM: readonly Fault[] = [
  {
    name: 'helm upgrade: other values for gateways and hubs',
    commit: () => install('plane', 'operators=true'),
  },
  {
    name: 'helm upgrade: gateways and hubs scaled to 3, and to 2',
    async commit() {
      for (const replicas of [3, 2])
        await install('plane', `operators=true,gateway.replicas=${replicas},hub.replicas=${replicas}`);
    },
  },
  { name: 'helm rollback of gateways and hubs', commit: () => helm(['rollback', 'plane', '1'], 'plane') },
  { name: 'helm upgrade: other values for agents', commit: () => install('agent', 'agent.deletionCost=true') },
  {
    name: 'helm upgrade: agents on each node, and a few again',
    async commit() {
      await install('agent', 'agent.kind=DaemonSet');
      await install('agent');
    },
  },
  {
    name: 'helm uninstall, and install again',
    mayFail: /./,
    mayCut: true,
    async commit() {
      for (const component of ['agent', 'plane'] as const) {
        await helm(['uninstall', component], component);
        assert.deepEqual(await objectsOf(component, 'app.kubernetes.io/managed-by=Helm'), []);
      }
      for (const component of ['plane', 'agent'] as const) await install(component);
      await useService('plane', 'gateway');
    },
  },
  {
    name: 'servers in the place of the plane',
    mayFail: /./,
    mayCut: true,
    commit: serversByHelm,
  },
  { name: 'helm upgrade: other values for servers', commit: () => install('server', 'operators=true') },
];
