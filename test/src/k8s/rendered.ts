import {
  kustomize,
  type Manifest,
  noKubectl,
  readManifest,
  type Selector,
  selects,
  staticPod,
  type Workload,
  workloads,
} from './manifests.ts';

export const NODE = 'k8s/overlays/control-plane-node/node';

/** The output of `kubectl kustomize k8s/base`, or empty without kubectl. */
export const base = noKubectl ? [] : kustomize('k8s/base');
export const deployed = workloads(base);
/** The static pod of the overlay for one control-plane node. */
export const server = staticPod(readManifest(`${NODE}/proxy-server.yaml`));
/** What holds its socket for HTTP CONNECT. */
export const socket = staticPod(readManifest(`${NODE}/proxy-socket.yaml`));

export function ofKind(kind: string): Manifest[] {
  return base.filter((manifest) => manifest.kind === kind);
}

export function deployment(name: string): Workload {
  const found = deployed.find((workload) => workload.name === name);
  if (!found) throw new Error(`no deployment ${name} in k8s/base`);
  return found;
}

export function selected(selector: Selector, namespace: string | undefined): Workload[] {
  return deployed.filter((workload) => workload.namespace === namespace && selects(selector, workload.labels));
}
