import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { parse, parseAllDocuments, stringify } from 'yaml';
import { goInstalled, goMissing, goProgram } from '../harness/go-program.ts';
import { unlessSlow } from '../harness/runtime.ts';
import { type Manifest, root } from './manifests.ts';

/** Renders the chart, where the machine has no Helm of its own. */
const HELM = 'helm.sh/helm/v3/cmd/helm@v3.22.0';
/** The first Helm that knows `--take-ownership`. */
const OWN_HELM = /^v(3\.(1[7-9]|[2-9]\d)|[4-9])\./;
/** The Kubernetes for which the chart is rendered. */
export const KUBERNETES = ['--kube-version', '1.34.0'];
/** Ends what hangs, and judges no speed. */
const RUN_MS = 5 * 60_000;

export const CHART = `${root}k8s/chart`;

/** Files of values, one or more for each component. */
export const EXAMPLES = readdirSync(`${CHART}/examples`).map((file) => `${CHART}/examples/${file}`);

/** The namespaces in which the comments of the examples install the components. */
export const NAMESPACES: Readonly<Record<string, string>> = {
  plane: 'isthmus-plane',
  agent: 'isthmus-agent',
  server: 'isthmus-server',
};

/** Why Helm does not run, or false. Where none is installed, it is built, which takes minutes, so it runs with the slow tests. */
export const noHelm: string | false =
  unlessSlow() || (ownHelm() === undefined && goMissing() && `no Helm: ${goMissing()}`);

export interface Answer {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Returns the path of Helm: the machine's own, or one that is built once. */
export async function helmProgram(): Promise<string> {
  return ownHelm() ?? (await goInstalled(HELM));
}

function ownHelm(): string | undefined {
  const path = spawnSync('sh', ['-c', 'command -v helm'], { encoding: 'utf8' }).stdout.trim();
  if (path === '') return undefined;
  const { stdout } = spawnSync(path, ['version', '--template={{.Version}}'], { encoding: 'utf8' });
  return OWN_HELM.test(stdout) ? path : undefined;
}

export async function helm(args: readonly string[], input = ''): Promise<Answer> {
  return spawnSync(await helmProgram(), args, { cwd: root, input, encoding: 'utf8', timeout: RUN_MS });
}

export type Values = Readonly<Record<string, unknown>>;

/** Renders the chart, or another version of it, or says why Helm refuses the values. */
export async function tryRender(values: Values, namespace: string, chart = CHART): Promise<Answer> {
  const args = ['template', 'isthmus', chart, '--namespace', namespace, ...KUBERNETES, '--values', '-'];
  return await helm(args, stringify(values));
}

export async function render(values: Values, namespace: string, chart = CHART): Promise<Manifest[]> {
  const { status, stdout, stderr } = await tryRender(values, namespace, chart);
  if (status !== 0) throw new Error(`helm template: ${stderr}`);
  return objects(stdout);
}

/** Renders a component in its namespace. */
export async function renderFor(component: string, values: Values = {}, chart = CHART): Promise<Manifest[]> {
  return await render({ component, ...values }, NAMESPACES[component] as string, chart);
}

export function example(file: string): Values & { readonly component: string } {
  return parse(readFileSync(file, 'utf8')) as Values & { readonly component: string };
}

/** Returns the objects of a text of YAML documents, without those that hold only comments. */
export function objects(text: string): Manifest[] {
  return parseAllDocuments(text).flatMap((document) => {
    if (document.errors[0]) throw document.errors[0];
    const object = document.toJS() as Manifest | null;
    return object === null ? [] : [object];
  });
}

/** Why `readAsApiServer` does not run, or false: it is built with Kubernetes' types, which takes minutes, so it runs with the slow tests. */
export const noApiServer: string | false = goMissing() || unlessSlow();

/** Runs the Go program that reads objects as an API server does, and returns its lines. */
export async function readAsApiServer(command: 'decode' | 'admit', input: string): Promise<string[]> {
  const run = spawnSync(await goProgram('manifests'), [command], { input, encoding: 'utf8', timeout: RUN_MS });
  if (run.status !== 0) throw new Error(`manifests ${command}: ${run.stderr}`);
  return run.stdout.split('\n').filter((line) => line !== '');
}

/**
 * Returns each leaf of an object by its path. Flags, and members of lists that have names, have these in the path instead of an index,
 * because their order does not matter.
 */
export function leaves(value: unknown, path = ''): Map<string, string> {
  if (typeof value !== 'object' || value === null) return new Map([[path, JSON.stringify(value)]]);
  const members = Array.isArray(value) ? value.map(keyed) : Object.entries(value);
  return new Map(members.flatMap(([key, member]) => [...leaves(member, path === '' ? key : `${path}/${key}`)]));
}

function keyed(member: unknown, index: number): [string, unknown] {
  const flag = /^(--[^=]*)=(.*)$/.exec(String(member));
  if (flag) return [flag[1] as string, flag[2]];
  const name = (member as { name?: unknown } | null)?.name;
  return typeof name === 'string' ? [name, member] : [String(index), member];
}
