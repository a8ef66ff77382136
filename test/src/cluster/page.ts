import { cpSync, existsSync } from 'node:fs';
import { join } from 'node:path';
import { VERSION } from '@isthmus/service';
import { until } from '../harness/index.ts';
import { sample } from './checks/metrics.ts';
import type { Load } from './faults/load.ts';
import { containerOf, endStatic, type Kubernetes, kill, kubectl, nextStatic } from './kubernetes.ts';
import { allowPods, commandsOf, HOLDER, K8S, SERVER as PROXY_SERVER, paste } from './recipe.ts';
import { ADDRESS } from './settings.ts';
import { readPod, removePod, writePod } from './static-pods.ts';
import { anpImage, ofAnp } from './upstream.ts';

const RECIPE = 'recipes/kubernetes-io';
const SERVER = 'konnectivity-server';
const AGENT = 'konnectivity-agent';
const SOCKET = '/etc/kubernetes/konnectivity-server/konnectivity-server.socket';
const ROLLOUT_MS = 180_000;
/** The kubelet notices a changed manifest within 20 s, if not at once. */
const LEAVES_MS = 30_000;

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
  await kubectl(['apply', '-k', join(K8S, RECIPE)]);
  await runAgents('ANP');
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

/**
 * Changes the server: docs/KUBERNETES.md, "Server first", steps 1 and 2. ANP's server takes its socket away when it
 * is told to end, and then waits for its sessions until the kubelet kills it, after 30 s. An API server waits no longer, so it is killed
 * at once.
 */
export async function changeServer(from: Make, to: Make, load: Load): Promise<void> {
  const before = await containerOf(SERVER);
  writeServer(to);
  if (from === 'ANP') {
    await until(() => !existsSync(SOCKET), { what: "the end of ANP's socket", deadline: LEAVES_MS });
    await load.strike(() => kill(before));
  }
  await nextStatic(SERVER, before);
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

/** Changes the agents' image, and nothing else. */
export async function runAgents(make: Make): Promise<void> {
  const image = make === 'ANP' ? anpImage('agent') : `isthmus:${VERSION}`;
  await kubectl(['-n', 'kube-system', 'set', 'image', `daemonset/${AGENT}`, `${AGENT}=${image}`]);
  const wait = `--timeout=${ROLLOUT_MS / 1000}s`;
  await kubectl(['-n', 'kube-system', 'rollout', 'status', `daemonset/${AGENT}`, wait], {
    deadline: ROLLOUT_MS + 5000,
  });
}
