// The cluster itself: main.ts starts this as the only program of a machine of its own. Arguments: options as JSON, a directory, and the
// name of the control groups.
import { writeFileSync } from 'node:fs';
import { Scope } from '../harness/index.ts';
import { conclude, say } from '../rig/command.ts';
import { type Outcome, underLoad } from './faults/load.ts';
import { kubectl } from './kubectl.ts';
import type { Node } from './node.ts';
import type { Options } from './options.ts';
import { PLANS } from './plan.ts';
import { apiAvailable, deployProbe, probePod } from './probe.ts';
import { applyAgents, prepareNode } from './recipe.ts';
import { inWords, table } from './report.ts';
import type { Check, Fault, Ground } from './step.ts';
import { authority, controlPlaneNode, initCluster } from './system.ts';
import { WAYS, type Way, type WayName } from './way.ts';

const [given = '{}', directory = '', group = ''] = process.argv.slice(2);
const options = JSON.parse(given) as Options;
const counts = { passed: 0, failed: 0 };
const outcomes: Outcome[] = [];

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

async function tryOut(step: Check | Fault, ground: Ground): Promise<void> {
  const start = performance.now();
  const what = `${ground.way.name}: ${step.name}`;
  try {
    await using scope = new Scope();
    await apiAvailable();
    const here = { ...ground, scope, pod: await probePod() };
    told(true, what, start, 'run' in step ? await step.run(here) : await disturb(step, here));
  } catch (error) {
    told(false, what, start, (error as Error).message);
  }
}

async function disturb(fault: Fault, ground: Ground): Promise<string> {
  const outcome = { way: ground.way, fault: fault.name, figures: await underLoad(fault, ground) };
  outcomes.push(outcome);
  if (outcome.figures.reason) throw new Error(`${inWords(outcome)}: ${outcome.figures.reason}`);
  return inWords(outcome);
}

function wanted(name: string): boolean {
  return options.only.length === 0 || options.only.some((each) => name.includes(each));
}

async function clusterUp(): Promise<Node> {
  const node = await step('a node', () => controlPlaneNode(directory, group));
  await step('images', () => node.containers(options.image));
  await step("the cluster's authority", () => authority(node));
  await step('k8s/README.md, One control-plane node', prepareNode);
  await step('kubeadm init', () => initCluster(node, group));
  await step('agents', applyAgents);
  await step('the probe', () => deployProbe(directory));
  return node;
}

async function main(): Promise<void> {
  await using scope = new Scope();
  const node = await clusterUp();
  for (const [name, way] of Object.entries(WAYS) as [WayName, Way][]) {
    if (options.way.length > 0 && !options.way.includes(name)) continue;
    const ground = { ...options, node, way, directory, group, scope, pod: await probePod() };
    const steps = await step(way.name, () => PLANS[name](ground));
    const chosen = steps.filter((each) => wanted(each.name) && !(options.short && 'instead' in each));
    for (const each of chosen) await tryOut(each, ground);
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
say('');
conclude(counts.passed, counts.failed);
process.exit();
