import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../harness/runtime.ts';
import { must } from './command.ts';
import { containerOf, kubectl, nextStatic, tryKubectl } from './kubernetes.ts';
import { ADDRESS } from './settings.ts';
import { manifestOf } from './static-pods.ts';

export const K8S = join(ROOT, 'k8s');
const OVERLAY = join(K8S, 'overlays/control-plane-node');
const NODE = join(OVERLAY, 'node');
export const SECTION = 'One control-plane node';
const HTTP_CONNECT = 'HTTP CONNECT over the socket';
/** The static pod that holds the socket for HTTP CONNECT. */
export const HOLDER = 'proxy-socket';
const PLANE_PKI = 'plane-pki';
const ROLLOUT_MS = 180_000;

/** Returns the commands of a section of a page below k8s: what an operator would paste. */
export function commandsOf(page: string, section: string): string {
  const [, commands] =
    readFileSync(join(K8S, page), 'utf8')
      .split(`\n## ${section}\n`)[1]
      ?.split('\n## ')[0]
      ?.match(/```sh\n(.*?)```/s) ?? [];
  if (!commands) throw new Error(`k8s/${page} has no commands in "${section}"`);
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
  cpSync(join(NODE, 'egress-selector-configuration.yaml'), to('egress-selector-configuration.yaml'));
  cpSync(join(NODE, 'proxy-server.yaml'), to('manifests/proxy-server.yaml'));
  cpSync(join(NODE, 'kube-apiserver0+json.yaml'), to('patches/kube-apiserver0+json.yaml'));
}

/** Runs commands as in an operator's shell, which ends at the first that fails. */
export async function paste(commands: string): Promise<void> {
  await must(['bash', '-euo', 'pipefail', '-c', commands]);
}

/** The rest of the section, once the API server is there. */
export async function applyAgents(): Promise<void> {
  await kubectl(['apply', '-k', OVERLAY]);
  await rolledOut('isthmus-agent', 'agent');
  // The kubelet shows a static pod up to 10 s after the API server could take it.
  await nextStatic('proxy-server', '');
}

export async function rolledOut(namespace: string, deployment: string): Promise<void> {
  const wait = `--timeout=${ROLLOUT_MS / 1000}s`;
  await kubectl(['-n', namespace, 'rollout', 'status', `deployment/${deployment}`, wait], {
    deadline: ROLLOUT_MS + 5000,
  });
}

/** The other protocol for the same socket, which a pod of its own then holds. */
export async function speakHttpConnect(): Promise<void> {
  const before = await containerOf('proxy-server');
  cpSync(join(NODE, `${HOLDER}.yaml`), manifestOf(HOLDER));
  await paste(commandsOf('README.md', HTTP_CONNECT));
  await nextStatic('proxy-server', before);
  await nextStatic(HOLDER, '');
}

/** k8s/base: a whole plane in the cluster, with certificates of `isthmus certs`, instead of the static pod. */
export async function applyPlane(directory: string): Promise<void> {
  const files = join(directory, PLANE_PKI);
  const hosts = 'isthmus-hub,hub.isthmus-plane.svc,gateway.isthmus-plane.svc';
  await isthmus(['certs', '--host', hosts, files]);
  await allowPods();
  for (const name of ['isthmus-plane', 'isthmus-agent']) await create(['namespace', name]);
  const serving = (edge: string) =>
    ['tls.crt', 'tls.key', 'ca.crt'].map((key) => `--from-file=${key}=${files}/${partOf(edge, key)}`);
  const secret = (name: string, edge: string) =>
    create(['-n', 'isthmus-plane', 'secret', 'generic', name, ...serving(edge)]);
  await secret('gateway-callers-tls', 'callers');
  await secret('gateway-peers-tls', 'peers');
  await secret('hub-peers-tls', 'peers');
  await secret('hub-agents-tls', 'agents');
  await create(['-n', 'isthmus-plane', 'secret', 'generic', 'redis-auth', '--from-literal=password=of-a-test']);
  await create(['-n', 'isthmus-agent', 'configmap', 'hub-ca', `--from-file=ca.crt=${files}/agents-ca.pem`]);
  await kubectl(['apply', '-k', join(K8S, 'base')]);
  for (const name of ['redis', 'hub', 'gateway']) await rolledOut('isthmus-plane', name);
  await rolledOut('isthmus-agent', 'agent');
}

/** Runs isthmus from the work tree. */
export function isthmus(args: readonly string[]): Promise<string> {
  return must([process.execPath, join(ROOT, 'apps/isthmus/bin/isthmus.js'), ...args]);
}

/** Lets the only node run what is not a control plane's. */
export async function allowPods(): Promise<void> {
  await tryKubectl(['taint', 'nodes', '--all', 'node-role.kubernetes.io/control-plane-']);
}

function partOf(edge: string, key: string): string {
  return (
    { 'tls.crt': `${edge}-server.pem`, 'tls.key': `${edge}-server-key.pem`, 'ca.crt': `${edge}-ca.pem` }[key] ?? ''
  );
}

/** Creates what may be there already. */
export async function create(what: readonly string[]): Promise<void> {
  const manifest = await kubectl(['create', ...what, '--dry-run=client', '-o=yaml']);
  await kubectl(['apply', '-f', '-'], { input: manifest });
}

/** The API server's certificate and file for the gateways. It has the host's network, where the cluster's names are not known. */
export async function useGateways(directory: string): Promise<void> {
  const files = join(directory, PLANE_PKI);
  const to = '/etc/kubernetes/pki/isthmus';
  mkdirSync(to, { recursive: true });
  cpSync(join(files, 'callers-ca.pem'), join(to, 'ca.crt'));
  cpSync(join(files, 'callers-kube-apiserver.pem'), join(to, 'tls.crt'));
  cpSync(join(files, 'callers-kube-apiserver-key.pem'), join(to, 'tls.key'));
  const config = join(NODE, 'egress-selector-configuration-http-connect.yaml');
  cpSync(config, '/etc/kubernetes/egress-selector-configuration.yaml');
  const address = await kubectl(['-n', 'isthmus-plane', 'get', 'service', 'gateway', '-o=jsonpath={.spec.clusterIP}']);
  writeFileSync('/etc/hosts', `${address} gateway.isthmus-plane.svc\n`, { flag: 'a' });
}
