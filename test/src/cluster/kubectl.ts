import { type Command, type CommandOptions, type Ended, must, run } from './command.ts';

const ROLLOUT_MS = 180_000;

/** kubectl as the cluster's administrator. */
export function kubectlArgs(args: readonly string[]): Command {
  return ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf', ...args];
}

/** Returns what kubectl prints. @throws if it fails */
export function kubectl(args: readonly string[], options?: CommandOptions): Promise<string> {
  return must(kubectlArgs(args), options);
}

/** Runs kubectl, which may fail. */
export function tryKubectl(args: readonly string[], options?: CommandOptions): Promise<Ended> {
  return run(kubectlArgs(args), options);
}

/** Returns the names of the objects that a label selects, the newest last. */
export async function namesOf(namespace: string, kind: string, selector: string): Promise<string[]> {
  const listed = ['--sort-by=.metadata.creationTimestamp', '-o=jsonpath={.items[*].metadata.name}'];
  const all = await kubectl(['-n', namespace, 'get', kind, '-l', selector, ...listed]);
  return all.split(' ').filter(Boolean);
}

/** @param objects as YAML or JSON, or as they are */
export async function apply(...objects: readonly (string | object)[]): Promise<void> {
  const text = objects.map((each) => (typeof each === 'string' ? each : JSON.stringify(each))).join('\n---\n');
  await kubectl(['apply', '-f', '-'], { input: text });
}

/** @param object such as `deployment/agent` */
export async function rolledOut(namespace: string, object: string): Promise<void> {
  const wait = `--timeout=${ROLLOUT_MS / 1000}s`;
  await kubectl(['-n', namespace, 'rollout', 'status', object, wait], { deadline: ROLLOUT_MS + 5000 });
}
