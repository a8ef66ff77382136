// The cluster itself: main.ts starts this as the only program of a machine of its own. Arguments: options as JSON, a directory, and the
// name of the control groups.
import { writeFileSync } from 'node:fs';
import { Scope } from '../harness/index.ts';
import type { Check, Context } from './checks/check.ts';
import { type Fault, type Outcome, runFault } from './faults/fault.ts';
import type { Plan } from './ground.ts';
import { Kubernetes, kubectl } from './kubernetes.ts';
import type { Options } from './options.ts';
import { PLANS } from './plan.ts';
import { apiAvailable, deployProbe, probePod } from './probe.ts';
import { applyAgents, prepareNode } from './recipe.ts';
import { table } from './report.ts';
import { prepareSystem } from './system.ts';
import { WAYS, type Way, type WayName } from './way.ts';

const [given = '{}', directory = '', group = ''] = process.argv.slice(2);
const options = JSON.parse(given) as Options;
const counts = { passed: 0, failed: 0 };
const outcomes: Outcome[] = [];

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function told(holds: boolean, what: string, start: number, detail: string): void {
  counts[holds ? 'passed' : 'failed'] += 1;
  say(`${holds ? 'ok     ' : 'FAILED '} ${what} (${seconds(start)}): ${detail}`);
}

const seconds = (start: number) => `${((performance.now() - start) / 1000).toFixed(1)} s`;

/** Does something that everything after it needs. */
async function step<T>(what: string, work: () => Promise<T>): Promise<T> {
  const start = performance.now();
  const result = await work();
  say(`        ${what} (${seconds(start)})`);
  return result;
}

async function check({ name, run }: Check, context: Omit<Context, 'scope'>): Promise<void> {
  const start = performance.now();
  const what = `${context.way.name}: ${name}`;
  try {
    await using scope = new Scope();
    told(true, what, start, await run({ ...context, scope }));
  } catch (error) {
    told(false, what, start, (error as Error).message);
  }
}

async function fault(each: Fault, way: Way, kubernetes: Kubernetes): Promise<void> {
  const start = performance.now();
  const what = `${way.name}: ${each.name}`;
  try {
    const outcome = await runFault(each, { kubernetes, way, short: options.short });
    outcomes.push(outcome);
    const { calls, failed, longest, long, admissions, reason } = outcome.figures;
    const cut = `${long.cut.length} of ${long.calls} long calls cut (${long.cut})`;
    const admitted = `${admissions.failed.length} of ${admissions.asked} admissions failed`;
    const figures = `${calls} calls, ${failed} failed, longest ${(longest / 1000).toFixed(1)} s, ${cut}, ${admitted}`;
    told(reason === undefined, what, start, reason ? `${figures}: ${reason}` : figures);
  } catch (error) {
    told(false, what, start, (error as Error).message);
  }
}

/** Everything that is wanted over a way that is there. */
async function tryOut(way: Way, { steps }: Plan, kubernetes: Kubernetes): Promise<void> {
  await apiAvailable();
  const pod = await probePod();
  for (const each of steps.filter(({ name }) => wanted(name))) {
    if ('comparison' in each && options.short) continue;
    if ('run' in each) await check(each, { way, pod, directory });
    else await fault(each, way, kubernetes);
  }
}

function wanted(name: string): boolean {
  return options.only.length === 0 || options.only.some((each) => name.includes(each));
}

async function clusterUp(): Promise<Kubernetes> {
  await step('a node', () => prepareSystem(directory, group));
  const kubernetes = new Kubernetes(directory, group);
  await step('images', () => kubernetes.containers(options.image));
  await step("the cluster's authority", () => kubernetes.authority());
  await step('k8s/README.md, One control-plane node', prepareNode);
  await step('kubeadm init', () => kubernetes.init());
  await step('agents', applyAgents);
  await step('the probe', () => deployProbe(directory));
  return kubernetes;
}

async function main(): Promise<void> {
  await using scope = new Scope();
  const kubernetes = await clusterUp();
  for (const [name, way] of Object.entries(WAYS) as [WayName, Way][]) {
    if (options.way.length > 0 && !options.way.includes(name)) continue;
    await step(way.name, () => PLANS[name].prepare({ kubernetes, directory, group, image: options.image, scope }));
    await tryOut(way, PLANS[name], kubernetes);
  }
  if (options.stay) {
    printTable();
    await stay();
  }
}

function printTable(): void {
  if (outcomes.length > 0) say(`\n${table(outcomes)}`);
}

async function stay(): Promise<never> {
  say('The cluster stays until Ctrl-C. kubectl, on another terminal:');
  say(
    `  nsenter -a -t $(pgrep -f 'inside.ts.*${group}$' | tail -1) kubectl --kubeconfig /etc/kubernetes/admin.conf get pods -A`,
  );
  return new Promise(() => setInterval(() => {}, 60_000));
}

try {
  await main();
} catch (error) {
  told(false, 'the cluster', 0, (error as Error).stack ?? '');
  say(await kubectl(['get', 'pods', '-A', '-o=wide']).catch((reason: Error) => reason.message));
}
printTable();
writeFileSync(options.outcomes, JSON.stringify(outcomes));
say(`\n${counts.passed} passed, ${counts.failed} failed`);
process.exit(counts.failed > 0 || counts.passed === 0 ? 1 : 0);
