import { globSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parse, stringify } from 'yaml';
import { until } from '../harness/index.ts';
import { run } from './command.ts';
import { kubectl, tryKubectl } from './kubectl.ts';

const MANIFESTS = '/etc/kubernetes/manifests';
export const API_SERVER = 'kube-apiserver';
const NEXT_MS = 3 * 60_000;

/** Does what kills something, which takes the calls with it that it carries. */
export type Strike = (kill: () => Promise<void>) => Promise<void>;

/** Called with when a static pod's manifest changed, and when the next pod was ready, on the clock of `performance.now()`. */
export type Replaced = (from: number, to: number) => void;

/** Changes a pod's manifest. */
type Edit = (pod: StaticPod) => void;

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
        volumeMounts?: object[];
        readonly ports?: { hostIP?: string }[];
        readonly startupProbe?: Probe;
        readonly livenessProbe?: Probe;
        readonly readinessProbe?: Probe;
      },
    ];
    readonly volumes?: { name?: string; readonly hostPath?: { path: string } }[];
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
  // A whole file at once: the kubelet takes a part of one for a broken pod, and looks again only 20 s later. It ignores names with a dot.
  const part = join(MANIFESTS, `.${pod.metadata.name}`);
  writeFileSync(part, stringify(pod));
  renameSync(part, manifestOf(pod.metadata.name));
}

export function removePod(name: string): void {
  rmSync(manifestOf(name), { force: true });
}

/** Has the kubelet run another form of a static pod, and waits until that is ready. */
export async function change(name: string, replaced: Replaced = () => {}, edit: Edit = () => {}): Promise<void> {
  const before = await containerOf(name);
  const from = performance.now();
  writePod(changed(name, edit));
  await nextStatic(name, before);
  replaced(from, performance.now());
}

/** Returns another form of a static pod. A pod is another one when its manifest changes. */
function changed(name: string, edit: Edit): StaticPod {
  const pod = readPod(manifestOf(name));
  pod.metadata.annotations = { ...pod.metadata.annotations, 'isthmus.test/changed': `${Date.now()}` };
  edit(pod);
  return pod;
}

/**
 * Has the kubelet start the API server again, which reads its files only then. By SIGTERM it would take a minute: it waits for watches to end.
 * The pause is short because informers try again ever more seldom, up to a minute apart, and go on so if it is away again within two minutes. A
 * controller manager that sees no lease of the kubelet for 50 s takes the node for dead.
 */
export async function restartApiServer(edit: Edit = () => {}): Promise<void> {
  const [before, uid] = [await containerOf(API_SERVER), await uidOf(API_SERVER)];
  const pod = changed(API_SERVER, edit);
  removePod(API_SERVER);
  // The kubelet has then begun to end the old one, and does not start it again.
  await sleep(2000);
  await kill(before);
  await donePod(uid);
  writePod(pod);
  await nextStatic(API_SERVER, before);
}

/** Kills a static pod's container with SIGKILL, and waits for the next one. */
export async function killStatic(name: string, strike: Strike = (kill) => kill()): Promise<void> {
  const before = await containerOf(name);
  await strike(() => kill(before));
  await nextStatic(name, before);
}

/** Ends a static pod at once, and waits until it is gone. By SIGTERM, one that holds a socket would wait for its tunnels, for a minute. */
export async function endStatic(name: string): Promise<void> {
  removePod(name);
  const gone = async () => {
    const { status, stdout } = await tryKubectl([...ofPod(name), '--ignore-not-found', containerField('containerID')]);
    if (stdout) await kill(stdout);
    return status === 0 && (await tryKubectl([...ofPod(name), '--ignore-not-found', '-o=name'])).stdout === '';
  };
  await until(gone, { what: `the end of ${name}`, deadline: NEXT_MS });
}

/** Returns the kubelet's own name of a static pod, which differs for each manifest. */
export function uidOf(name: string): Promise<string> {
  return kubectl([...ofPod(name), '-o=jsonpath={.metadata.annotations.kubernetes\\.io/config\\.hash}']);
}

/**
 * Waits until the kubelet is done with a pod. It then starts another static pod of that name at once, and before that looks only every 10 to 15 s
 * whether it may. The pod's control group is the last that it removes, a moment after the API server's object at times.
 */
export async function donePod(uid: string): Promise<void> {
  const gone = () => globSync(`/sys/fs/cgroup/{cpu/,}*/kubepods/**/pod${uid}`).length === 0;
  await until(gone, { what: `the end of the pod ${uid}`, deadline: NEXT_MS });
}

/** Kills a container with SIGKILL, which may have ended already. */
export async function kill(id: string): Promise<void> {
  const task = id.replace(/^.*\//, '');
  const { stderr } = await run(['ctr', '-n', 'k8s.io', 'tasks', 'kill', '--signal', 'SIGKILL', task]);
  if (stderr && !/not found/.test(stderr)) throw new Error(`${id} is not killed: ${stderr}`);
}

/** Waits until a static pod is ready, and its container another one than this. */
export async function nextStatic(name: string, before: string): Promise<void> {
  const next = async () => {
    const id = await containerOf(name);
    return id !== '' && id !== before && (await ofStatic(name, 'ready')) === 'true';
  };
  await until(next, { what: `another ${name}`, deadline: NEXT_MS });
}

export function containerOf(name: string): Promise<string> {
  return ofStatic(name, 'containerID');
}

function ofStatic(name: string, field: string): Promise<string> {
  return kubectl([...ofPod(name), containerField(field)]);
}

const ofPod = (name: string) => ['-n', 'kube-system', 'get', 'pod', `${name}-node`];
const containerField = (field: string) => `-o=jsonpath={.status.containerStatuses[0].${field}}`;
