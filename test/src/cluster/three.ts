import { cpSync, existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { balance, type Scope, until } from '../harness/index.ts';
import { ROOT } from '../harness/runtime.ts';
import { must } from './command.ts';
import {
  apiServer,
  BALANCER,
  CONTROL_PLANES,
  IDENTITY,
  placed,
  SOCKET,
  server,
  useBalancer,
} from './control-planes.ts';
import {
  containerOf,
  endStatic,
  type Kubernetes,
  kill,
  killStatic,
  kubectl,
  nextStatic,
  tryKubectl,
} from './kubernetes.ts';
import { allowPods, commandsOf, HOLDER, isthmus, K8S, SERVER as PROXY_SERVER, paste, rolledOut } from './recipe.ts';
import { ADDRESS } from './settings.ts';
import { manifestOf, readPod, type StaticPod, writePod } from './static-pods.ts';

const RECIPE = 'recipes/kubeadm-ha';
const SECTIONS = ['What each API server needs', "Each node's files"];
export const SERVER = 'konnectivity-server';
export const API_SERVER = 'kube-apiserver';
const ADDRESSES = CONTROL_PLANES.map(({ address }) => address);
const CHECK_MS = 2000;

/** recipes/kubeadm-ha without Redis: three API servers, a server beside each, and agents that find all servers behind a load balancer. */
export async function threeControlPlanes(scope: Scope, kubernetes: Kubernetes): Promise<void> {
  for (const address of [BALANCER, ...ADDRESSES.slice(1)])
    await must(['ip', 'address', 'add', `${address}/24`, 'dev', 'node0']);
  await nodeFiles();
  for (const name of [PROXY_SERVER, HOLDER]) await endStatic(name);
  await tryKubectl(['delete', 'namespace', 'isthmus-plane', '--ignore-not-found', '--wait=false']);
  await allowPods();
  await apiServers();
  const behind = (port: number) => ADDRESSES.map((host) => ({ host, port }));
  await balance(scope, { host: BALANCER, port: 6443 }, behind(6443), ({ host }) => apiServerReady(host));
  await balance(scope, { host: BALANCER, port: 8132 }, behind(8132), ({ host }) => serverAlive(host));
  useBalancer();
  await kubernetes.restartKubelet();
  for (const name of ['kube-controller-manager', 'kube-scheduler']) await nextStatic(name, await killStatic(name));
  for (const pod of [...servers(), ...holders()]) writePod(pod);
  await kubectl(['apply', '-k', join(K8S, RECIPE)]);
  await rolledOut('isthmus-agent', 'agent');
  for (const { suffix } of CONTROL_PLANES)
    for (const name of [SERVER, HOLDER]) await nextStatic(`${name}${suffix}`, '');
}

/** A server says on its health port that it is alive. (It is ready only once it has agents, which come through the balancer.) */
async function serverAlive(host: string): Promise<boolean> {
  const answer = await fetch(`http://${host}:8134/healthz`, { signal: AbortSignal.timeout(CHECK_MS) });
  await answer.text();
  return answer.status === 200;
}

/** An API server says that it is ready: before that it takes connections, and refuses what is asked. */
export function apiServerReady(host: string): Promise<boolean> {
  return new Promise((resolve) => {
    const asked = request({
      host,
      port: 6443,
      path: '/readyz',
      rejectUnauthorized: false,
      agent: false,
      timeout: CHECK_MS,
    });
    asked.once('response', (answer) => {
      answer.resume();
      resolve(answer.statusCode === 200);
    });
    asked.once('timeout', () => asked.destroy(new Error('no answer')));
    asked.once('error', () => resolve(false));
    asked.end();
  });
}

/** The recipe's commands. A node's own files are then copied for the other two. */
async function nodeFiles(): Promise<void> {
  if (!existsSync(join(homedir(), 'isthmus'))) symlinkSync(ROOT, join(homedir(), 'isthmus'));
  await isthmus(['certs', '--host', 'localhost,127.0.0.1', join(homedir(), 'pki')]);
  for (const section of SECTIONS) await paste(commandsOf(join(RECIPE, 'README.md'), section));
  for (const { address, suffix } of CONTROL_PLANES.slice(1)) {
    await must(['install', '-d', '-o', '65532', '-g', '65532', '-m', '0750', `${SOCKET}${suffix}`]);
    await must(['cp', '-a', IDENTITY, `${IDENTITY}${suffix}`]);
    const config = join(`${IDENTITY}${suffix}`, 'config');
    writeFileSync(config, readFileSync(config, 'utf8').replace(`https://${ADDRESS}:6443`, `https://${address}:6443`));
  }
}

async function apiServers(): Promise<void> {
  cpSync(
    join(K8S, 'overlays/control-plane-node/node/egress-selector-configuration.yaml'),
    '/etc/kubernetes/egress-selector-configuration.yaml',
  );
  const kubeadms = readPod(manifestOf(API_SERVER));
  // It leaves the wildcard address first, or the others could not listen.
  const [first, ...others] = CONTROL_PLANES.map((at) => apiServer(kubeadms, at)) as [StaticPod, ...StaticPod[]];
  const before = await containerOf(API_SERVER);
  writePod(first);
  await kill(before);
  await nextStatic(API_SERVER, before);
  for (const pod of others) writePod(pod);
  for (const address of ADDRESSES)
    await until(() => apiServerReady(address), { what: `the API server at ${address}`, deadline: 180_000 });
}

export function recipesServer(): StaticPod {
  return readPod(join(K8S, RECIPE, 'node/konnectivity-server.yaml'));
}

/** What holds the socket of each control plane's API server. */
function holders(): StaticPod[] {
  const pod = readPod(join(K8S, `overlays/control-plane-node/node/${HOLDER}.yaml`));
  return CONTROL_PLANES.map((at) => placed(pod, at));
}

/**
 * Returns the servers of all control planes.
 * @param leases whether they hold leases
 * @param count whether they say how many they are, too
 */
export function servers({ leases = false, count = true }: { leases?: boolean; count?: boolean } = {}): StaticPod[] {
  const recipes = recipesServer();
  const [container] = recipes.spec.containers;
  const flags = (container.args ?? []).filter((flag) => count || !flag.startsWith('--server-count='));
  container.args = leases ? [...flags, '--enable-lease-controller=true'] : flags;
  return CONTROL_PLANES.map((at) => server(recipes, at));
}
