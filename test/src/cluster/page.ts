import { cpSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '@isthmus/service';
import { parse } from 'yaml';
import { until } from '../harness/index.ts';
import { sample } from './checks/metrics.ts';
import { SOCKET } from './control-planes.ts';
import type { Load } from './faults/load.ts';
import { apply, endStatic, type Kubernetes, kubectl, nextStatic } from './kubernetes.ts';
import { allowPods, commandsOf, HOLDER, K8S, SERVER as PROXY_SERVER, paste } from './recipe.ts';
import { ADDRESS } from './settings.ts';
import { readPod, removePod, writePod } from './static-pods.ts';
import { anpImage, endServer, ofAnp } from './upstream.ts';

const RECIPE = 'recipes/kubernetes-io';
const SERVER = 'konnectivity-server';
const AGENT = 'konnectivity-agent';
const ROLLOUT_MS = 180_000;

export type Make = 'ANP' | 'Isthmus';

/** recipes/kubernetes-io, with ANP's images as the page has them, in place of the other recipe's server and agents. */
export async function kubernetesIosPage(kubernetes: Kubernetes): Promise<void> {
  await kubectl(['-n', 'isthmus-agent', 'scale', 'deployment/agent', '--replicas=0']);
  for (const name of [PROXY_SERVER, HOLDER]) await endStatic(name);
  await allowPods();
  // The page makes this file with openssl.
  await paste(
    'kubeadm kubeconfig user --client-name system:konnectivity-server > /etc/kubernetes/konnectivity-server.conf',
  );
  await paste(commandsOf(join(RECIPE, 'README.md'), 'Files that user 65532 must read'));
  const egress = 'egress-selector-configuration.yaml';
  cpSync(join(K8S, RECIPE, 'node', egress), join('/etc/kubernetes', egress));
  writeServer('ANP');
  await kubernetes.restartApiServer();
  await kubectl(['apply', '-f', join(K8S, RECIPE, 'konnectivity-rbac.yaml')]);
  await apply(JSON.stringify(pagesAgents()));
  await agentsRun('ANP');
  await nextStatic(SERVER, '');
}

/** Ends the page's server and agents, if they are there. */
export async function leavePage(): Promise<void> {
  removePod(SERVER);
  await kubectl(['delete', '--ignore-not-found', '-k', join(K8S, RECIPE)]);
}

function writeServer(make: Make): void {
  const recipes = readPod(join(K8S, RECIPE, `node/${SERVER}.yaml`));
  // Agents that have lost their server come back within about 11 s.
  if (make === 'Isthmus') recipes.spec.containers[0].args?.push('--dial-park-timeout=15s');
  writePod(make === 'ANP' ? ofAnp(recipes) : recipes);
}

/** Changes the server: docs/KUBERNETES.md, "Server first", steps 1 and 2. */
export async function changeServer(to: Make, load: Load): Promise<void> {
  await endServer(SERVER, SOCKET, (end) => load.strike(end));
  writeServer(to);
  await nextStatic(SERVER, '');
  await until(async () => (await sessions()) === 1, "the agent's session");
}

/** Returns how many sessions the server has. */
async function sessions(): Promise<number> {
  return sample(
    await (await fetch(`http://${ADDRESS}:8134/metrics`)).text(),
    'konnectivity_network_proxy_server_ready_backend_connections',
    {},
  );
}

/** The recipe's agents as the page has them. ANP's agent does not leave before it is killed. */
function pagesAgents(): DaemonSet {
  const daemonSet: DaemonSet = parse(readFileSync(join(K8S, RECIPE, `${AGENT}.yaml`), 'utf8'));
  delete daemonSet.spec.updateStrategy;
  delete daemonSet.spec.template.spec.terminationGracePeriodSeconds;
  for (const container of daemonSet.spec.template.spec.containers) container.image = anpImage('agent');
  return daemonSet;
}

interface DaemonSet {
  readonly spec: {
    updateStrategy?: unknown;
    readonly template: { readonly spec: { terminationGracePeriodSeconds?: number; readonly containers: Container[] } };
  };
}

interface Container {
  image: string;
}

/** Changes the agents: step 3 there, and its way back. */
export async function changeAgents(to: Make): Promise<void> {
  if (to === 'Isthmus') await kubectl(['apply', '-k', join(K8S, RECIPE)]);
  else await kubectl(['-n', 'kube-system', 'rollout', 'undo', `daemonset/${AGENT}`]);
  await agentsRun(to);
}

/** Waits until all agents are of a make, but for some of ours that leave: those stay as long as their tunnels. */
async function agentsRun(make: Make): Promise<void> {
  const images = { ANP: anpImage('agent'), Isthmus: `isthmus:${VERSION}` };
  const run = async () => {
    const pods = await kubectl(['-n', 'kube-system', 'get', 'pods', '-l', `k8s-app=${AGENT}`, '-o=json']);
    const { items } = JSON.parse(pods) as { items: Pod[] };
    const leave = ({ metadata, spec }: Pod) =>
      metadata.deletionTimestamp !== undefined && spec.containers[0]?.image === images.Isthmus;
    const stay = items.filter((pod) => !leave(pod));
    return stay.length > 0 && stay.every((pod) => pod.spec.containers[0]?.image === images[make] && isReady(pod));
  };
  await until(run, { what: `agents of ${make} alone`, deadline: ROLLOUT_MS });
}

function isReady({ status }: Pod): boolean {
  return status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') ?? false;
}

interface Pod {
  readonly metadata: { readonly deletionTimestamp?: string };
  readonly spec: { readonly containers: readonly Container[] };
  readonly status: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] };
}
