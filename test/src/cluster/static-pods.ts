import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
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
  writeManifest(manifestOf(pod.metadata.name), stringify(pod));
}

/** Puts a whole file there at once: the kubelet takes a part of one for a broken pod, and looks again only 20 s later. */
export function writeManifest(path: string, text: string): void {
  // The kubelet ignores names that begin with a dot.
  const part = join(dirname(path), `.${basename(path)}`);
  writeFileSync(part, text);
  renameSync(part, path);
}

export function removePod(name: string): void {
  rmSync(manifestOf(name), { force: true });
}
