import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ADDRESS } from './settings.ts';
import type { StaticPod } from './static-pods.ts';

/** The address of the load balancer in recipes/kubeadm-ha. */
export const BALANCER = '192.0.2.100';

/** A control-plane node. All are the same machine here, so each has an address, names and directories of its own. */
export interface ControlPlane {
  readonly address: string;
  /** Of the names of its pods and directories. */
  readonly suffix: string;
}

export const CONTROL_PLANES: readonly ControlPlane[] = [
  { address: ADDRESS, suffix: '' },
  { address: '192.0.2.11', suffix: '-2' },
  { address: '192.0.2.12', suffix: '-3' },
];

/** What a node has to itself: its server's socket; keys, and a kubeconfig for its own API server. */
export const SOCKET = '/etc/kubernetes/konnectivity-server';
export const IDENTITY = '/etc/kubernetes/konnectivity';

/** Returns a static pod with the host's network as one of several control planes on the same node can run it. */
export function placed(pod: StaticPod, { address, suffix }: ControlPlane): StaticPod {
  const copy: StaticPod = JSON.parse(
    JSON.stringify(pod).replaceAll(new RegExp(`\\b${ADDRESS}\\b(?!\\d)`, 'g'), address),
  );
  copy.metadata.name += suffix;
  const [container] = copy.spec.containers;
  for (const port of container.ports ?? []) port.hostIP = address;
  for (const probe of [container.startupProbe, container.livenessProbe, container.readinessProbe])
    if (probe?.httpGet) probe.httpGet.host = address;
  for (const variable of container.env ?? []) if (variable.name === 'NODE_IP') replace(variable, address);
  for (const { hostPath } of copy.spec.volumes ?? [])
    if (hostPath && [SOCKET, IDENTITY].includes(hostPath.path)) hostPath.path += suffix;
  return copy;
}

/** Returns a control plane's API server: kubeadm's, at an address of its own. */
export function apiServer(kubeadms: StaticPod, at: ControlPlane): StaticPod {
  const pod = placed(kubeadms, at);
  const [{ command }] = pod.spec.containers;
  if (!command.some((flag) => flag.startsWith('--bind-address='))) command.push(`--bind-address=${at.address}`);
  return pod;
}

/** Returns a control plane's server: the recipe's, at an address of its own. */
export function server(recipes: StaticPod, at: ControlPlane): StaticPod {
  const pod = placed(recipes, at);
  const [container] = pod.spec.containers;
  for (const edge of ['agent', 'admin']) container.args?.push(`--${edge}-bind-address=${at.address}`);
  for (const variable of container.env ?? []) if (variable.name === 'NODE_NAME') replace(variable, `node${at.suffix}`);
  return pod;
}

function replace(variable: { value?: string; valueFrom?: unknown }, value: string): void {
  delete variable.valueFrom;
  variable.value = value;
}

/** Sends the node's own clients to the balancer, as `kubeadm init --control-plane-endpoint` would have done. */
export function useBalancer(): void {
  for (const name of ['admin', 'kubelet', 'controller-manager', 'scheduler']) {
    const path = join('/etc/kubernetes', `${name}.conf`);
    const before = readFileSync(path, 'utf8');
    writeFileSync(path, before.replace(`https://${ADDRESS}:6443`, `https://${BALANCER}:6443`));
  }
}
