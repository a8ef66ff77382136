import { cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../harness/runtime.ts';
import { type CommandOptions, must } from './command.ts';
import { kubectl, nextStatic, tryKubectl } from './kubernetes.ts';
import { ADDRESS } from './settings.ts';
import { manifestOf } from './static-pods.ts';

export const K8S = join(ROOT, 'k8s');
const OVERLAY = join(K8S, 'overlays/control-plane-node');
const NODE = join(OVERLAY, 'node');
export const SECTION = 'One control-plane node';
/** The static pod that holds the API server's socket. */
export const HOLDER = 'proxy-socket';
/** The static pod of the server that it dials. */
export const SERVER = 'proxy-server';
/** What the API server reads. */
export const EGRESS = '/etc/kubernetes/egress-selector-configuration.yaml';
const ONE_CLUSTER = 'One cluster';
const ITS_API_SERVER = 'Its API server';
const ROLLOUT_MS = 180_000;

/** Returns the first commands of a section of a page below k8s: what an operator would paste. */
export function commandsOf(page: string, section: string): string {
  const [, text = ''] = readFileSync(join(K8S, page), 'utf8').split(new RegExp(`\n###? ${section}\n`));
  const [, commands] = text.split(/\n###? /)[0]?.match(/```sh\n(.*?)```/s) ?? [];
  if (!commands) throw new Error(`k8s/${page} has no commands in "${section}"`);
  return commands;
}

/** The commands with which docs/TENANTS.md begins: from a management cluster to the first exec. */
export function hosterCommands(): readonly string[] {
  const commands = commandsOf('../docs/TENANTS.md', 'From a management cluster').trim().split('\n');
  if (commands.length !== 10 || !/ exec .*deploy\/agent/.test(commands.at(-1) ?? ''))
    throw new Error(`docs/TENANTS.md has other commands: ${commands.join('\n')}`);
  return commands;
}

/** "One control-plane node" of k8s/README.md up to `kubeadm init`: certificates, the static pod, and what the API server needs. */
export async function prepareNode(): Promise<void> {
  const commands = commandsOf('README.md', SECTION);
  if (!commands.includes(ADDRESS)) throw new Error(`k8s/README.md no longer has the node's address, ${ADDRESS}`);
  await paste(commands);
  const to = (path: string) => join('/etc/kubernetes', path);
  mkdirSync(to('manifests'), { recursive: true });
  mkdirSync(to('patches'), { recursive: true });
  cpSync(join(NODE, 'egress-selector-configuration.yaml'), EGRESS);
  for (const pod of [SERVER, HOLDER]) cpSync(join(NODE, `${pod}.yaml`), manifestOf(pod));
  cpSync(join(NODE, 'kube-apiserver0+json.yaml'), to('patches/kube-apiserver0+json.yaml'));
}

/** Runs commands as in an operator's shell, which ends at the first that fails. */
export function paste(commands: string, options?: CommandOptions): Promise<string> {
  return must(['bash', '-euo', 'pipefail', '-c', commands], options);
}

/** The rest of the section, once the API server is there. */
export async function applyAgents(): Promise<void> {
  await kubectl(['apply', '-k', OVERLAY]);
  await rolledOut('isthmus-agent', 'agent');
  // The kubelet shows a static pod up to 10 s after the API server could take it.
  for (const pod of [SERVER, HOLDER]) await nextStatic(pod, '');
}

export async function rolledOut(
  namespace: string,
  name: string,
  kind: 'deployment' | 'daemonset' = 'deployment',
): Promise<void> {
  const wait = `--timeout=${ROLLOUT_MS / 1000}s`;
  await kubectl(['-n', namespace, 'rollout', 'status', `${kind}/${name}`, wait], {
    deadline: ROLLOUT_MS + 5000,
  });
}

/** The other protocol for the same socket. */
export async function speakHttpConnect(): Promise<void> {
  await paste(`sed -i 's/proxyProtocol: GRPC/proxyProtocol: HTTPConnect/' ${EGRESS}`);
}

/** "One cluster" of k8s/README.md: a whole plane in the cluster, instead of the static pod. */
export async function applyPlane(directory: string): Promise<void> {
  await allowPods();
  await paste(commandsOf('README.md', ONE_CLUSTER), asOperator(directory));
}

/** "Its API server": a certificate and a file for the gateways. */
export async function useGateways(directory: string): Promise<void> {
  await paste(commandsOf('README.md', ITS_API_SERVER), asOperator(directory));
}

/** In a directory like a checkout's, with isthmus at hand. */
function asOperator(directory: string): CommandOptions {
  const cwd = join(directory, 'operator');
  mkdirSync(cwd, { recursive: true });
  if (!existsSync(join(cwd, 'k8s'))) symlinkSync(K8S, join(cwd, 'k8s'));
  return { cwd, env: { PATH: `${join(ROOT, 'node_modules/.bin')}:${process.env.PATH}` }, deadline: 4 * ROLLOUT_MS };
}

/** Runs isthmus from the work tree. */
export function isthmus(args: readonly string[]): Promise<string> {
  return must([process.execPath, join(ROOT, 'apps/isthmus/bin/isthmus.js'), ...args]);
}

/** Lets the only node run what is not a control plane's. */
export async function allowPods(): Promise<void> {
  await tryKubectl(['taint', 'nodes', '--all', 'node-role.kubernetes.io/control-plane-']);
}
