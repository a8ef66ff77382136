import { cpSync, existsSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { balance, until } from '../harness/index.ts';
import { ROOT } from '../harness/runtime.ts';
import { must, run } from './command.ts';
import {
  apiServer,
  BALANCER,
  CONTROL_PLANES,
  type ControlPlane,
  IDENTITY,
  placed,
  SOCKET,
  server,
  useBalancer,
} from './control-planes.ts';
import { agentDeleted, agentsRolled } from './faults/faults.ts';
import { kubectl, rolledOut, tryKubectl } from './kubectl.ts';
import { allowPods, commandsOf, HOLDER, isthmus, K8S, SERVER as PROXY_SERVER, paste } from './recipe.ts';
import { ADDRESS } from './settings.ts';
import {
  API_SERVER,
  change,
  endStatic,
  killStatic,
  manifestOf,
  nextStatic,
  readPod,
  restartApiServer,
  type StaticPod,
  writePod,
} from './static-pods.ts';
import type { Fault, Ground } from './step.ts';
import { putAnp } from './upstream.ts';

const RECIPE = 'recipes/kubeadm-ha';
const SECTIONS = ['What each API server needs', "Each node's files"];
export const SERVER = 'konnectivity-server';
const ADDRESSES = CONTROL_PLANES.map(({ address }) => address);
const API_SERVER_MS = 180_000;

/** recipes/kubeadm-ha without Redis: three API servers, a server beside each, and agents that find all servers behind a load balancer. */
export async function threeControlPlanes({ scope, node }: Ground): Promise<void> {
  for (const address of [BALANCER, ...ADDRESSES.slice(1)])
    await must(['ip', 'address', 'add', `${address}/24`, 'dev', 'node0']);
  await nodeFiles();
  for (const name of [PROXY_SERVER, HOLDER]) await endStatic(name);
  await tryKubectl(['delete', 'namespace', 'isthmus-plane', '--ignore-not-found', '--wait=false']);
  await allowPods();
  await apiServers();
  // It is ready only once it has agents, which come through the balancer.
  const alive = ({ host }: { host: string }) => isWell(`http://${host}:8134/healthz`);
  const behind = (port: number) => ADDRESSES.map((host) => ({ host, port }));
  await balance(scope, { host: BALANCER, port: 6443 }, behind(6443), ({ host }) => apiServerReady(host));
  await balance(scope, { host: BALANCER, port: 8132 }, behind(8132), alive);
  useBalancer();
  await node.restartKubelet();
  for (const name of ['kube-controller-manager', 'kube-scheduler']) await killStatic(name);
  for (const pod of [...servers(), ...holders()]) writePod(pod);
  await kubectl(['apply', '-k', join(K8S, RECIPE)]);
  await rolledOut('isthmus-agent', 'deployment/agent');
  for (const { suffix } of CONTROL_PLANES)
    for (const name of [SERVER, HOLDER]) await nextStatic(`${name}${suffix}`, '');
}

/** Whether a server or an API server says that it is well. It takes connections before that. */
async function isWell(url: string): Promise<boolean> {
  return (await run(['curl', '--silent', '--fail', '--insecure', '--max-time', '2', url])).status === 0;
}

function apiServerReady(host: string): Promise<boolean> {
  return isWell(`https://${host}:6443/readyz`);
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
  await restartApiServer((pod) => Object.assign(pod, first));
  for (const pod of others) writePod(pod);
  for (const address of ADDRESSES)
    await until(() => apiServerReady(address), { what: `the API server at ${address}`, deadline: API_SERVER_MS });
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
export function servers({ leases = false, count = true } = {}): StaticPod[] {
  const recipes = recipesServer();
  const [container] = recipes.spec.containers;
  const flags = (container.args ?? []).filter((flag) => count || !flag.startsWith('--server-count='));
  container.args = leases ? [...flags, '--enable-lease-controller=true'] : flags;
  return CONTROL_PLANES.map((at) => server(recipes, at));
}

/** What is done to three control planes: a server beside each API server. */
export const OF_THREE: readonly Fault[] = [
  agentsRolled,
  agentDeleted,
  {
    name: 'each server changed, one after the other',
    commit: ({ replaced }) => eachOf(SERVER, (name) => change(name, replaced)),
  },
  {
    name: 'each server SIGKILLed, one after the other',
    commit: ({ strike }) => eachOf(SERVER, (name) => killStatic(name, strike)),
  },
  {
    name: 'each API server SIGKILLed, one after the other',
    mayCut: true,
    commit: ({ strike }) =>
      eachOf(API_SERVER, async (name, address) => {
        await killStatic(name, strike);
        await until(() => apiServerReady(address), { what: `the API server at ${address}`, deadline: API_SERVER_MS });
      }),
  },
];

/** @param act is done to each of the static pods of this name */
async function eachOf(name: string, act: (name: string, address: string) => Promise<void>): Promise<void> {
  for (const { address, suffix } of CONTROL_PLANES) await act(`${name}${suffix}`, address);
}

/** To ANP and to Isthmus again, on one of the three. There are agents of both kinds. */
export const ONE_OF_THREE: Fault = {
  name: 'one of three servers: Isthmus to ANP, and back',
  mayCut: true,
  mayCutAdmissions: true,
  async commit({ strike }) {
    const { suffix } = CONTROL_PLANES.at(-1) as ControlPlane;
    const putBack = await putAnp(`${SERVER}${suffix}`, `${HOLDER}${suffix}`, `${SOCKET}${suffix}`, strike);
    await putBack(strike);
  },
};
