import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';

const MANIFESTS = '/etc/kubernetes/manifests';

interface Probe {
  readonly httpGet?: { host?: string };
}

/** Of a pod's manifest, what is changed here. */
export interface StaticPod {
  readonly metadata: { name: string; annotations?: Record<string, string> };
  readonly spec: {
    readonly containers: [
      {
        image: string;
        command: string[];
        args?: string[];
        env?: { name: string; value?: string; valueFrom?: unknown }[];
        readonly ports?: { hostIP?: string }[];
        readonly startupProbe?: Probe;
        readonly livenessProbe?: Probe;
        readonly readinessProbe?: Probe;
      },
    ];
    readonly volumes?: { readonly hostPath?: { path: string } }[];
  };
}

export function readPod(path: string): StaticPod {
  return parse(readFileSync(path, 'utf8'));
}

/** Returns the path of a static pod's manifest on the node. */
export function manifestOf(name: string): string {
  return join(MANIFESTS, `${name}.yaml`);
}

/** Gives the kubelet a static pod to run, or another form of one that it runs. */
export function writePod(pod: StaticPod): void {
  writeFileSync(manifestOf(pod.metadata.name), stringify(pod));
}

export function removePod(name: string): void {
  rmSync(manifestOf(name), { force: true });
}
