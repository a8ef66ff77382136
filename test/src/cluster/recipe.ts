import { cpSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../harness/runtime.ts';
import { type CommandOptions, must } from './command.ts';
import { kubectl, rolledOut, tryKubectl } from './kubectl.ts';
import { ADDRESS } from './settings.ts';
import { manifestOf, nextStatic } from './static-pods.ts';

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
/** Of several roll-outs. */
const OPERATOR_MS = 720_000;

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
  await rolledOut('isthmus-agent', 'deployment/agent');
  // The kubelet shows a static pod up to a minute after the API server could take it.
  for (const pod of [SERVER, HOLDER]) await nextStatic(pod, '');
}

/** The other protocol for the same socket. */
export async function speakHttpConnect(): Promise<void> {
  await paste(`sed -i 's/proxyProtocol: GRPC/proxyProtocol: HTTPConnect/' ${EGRESS}`);
}

/** "One cluster" of k8s/README.md, a whole plane in the cluster instead of the static pod, and what "Its API server" needs of it. */
export async function applyPlane(directory: string): Promise<void> {
  await allowPods();
  for (const section of ['One cluster', 'Its API server'])
    await asOperator(directory, commandsOf('README.md', section));
}

/** Runs commands in a directory like a checkout's, with isthmus at hand, and what is in `bin`. */
export function asOperator(directory: string, commands: string): Promise<string> {
  const cwd = join(directory, 'operator');
  mkdirSync(join(cwd, 'bin'), { recursive: true });
  if (!existsSync(join(cwd, 'k8s'))) cpSync(K8S, join(cwd, 'k8s'), { recursive: true });
  const env = {
    PATH: [join(cwd, 'bin'), join(ROOT, 'node_modules/.bin'), process.env.PATH].join(':'),
    KUBECONFIG: '/etc/kubernetes/admin.conf',
    XDG_CONFIG_HOME: cwd,
    CLUSTERCTL_DISABLE_VERSIONCHECK: 'true',
  };
  return paste(commands, { cwd, env, deadline: OPERATOR_MS });
}

/** Runs isthmus from the work tree. */
export function isthmus(args: readonly string[]): Promise<string> {
  return must([process.execPath, join(ROOT, 'apps/isthmus/bin/isthmus.js'), ...args]);
}

/** Lets the only node run what is not a control plane's. */
export async function allowPods(): Promise<void> {
  await tryKubectl(['taint', 'nodes', '--all', 'node-role.kubernetes.io/control-plane-']);
}
