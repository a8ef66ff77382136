import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { until } from '../../harness/index.ts';
import { CONTROL_PLANES } from '../control-planes.ts';
import { apply, kubectl, namesOf, rolledOut } from '../kubectl.ts';
import { K8S } from '../recipe.ts';
import { change, kill, manifestOf, nextStatic, readPod, removePod, writePod } from '../static-pods.ts';
import type { Check } from '../step.ts';
import { SERVER, servers } from '../three.ts';
import { anpImage } from '../upstream.ts';
import { sessionsAre } from './metrics.ts';

const AGENTS = 2;
const ANP = 'agent-of-anp';
const LEASE_MS = 180_000;

/** recipes/kubeadm-ha with its component `leases`. Nothing but leases says then that there are three servers. */
export const LEASES: readonly Check[] = [
  {
    name: 'servers hold leases',
    async run({ directory }) {
      await changeServers({ leases: true });
      await applyComponent(directory);
      await until(async () => (await leases()).length === CONTROL_PLANES.length, 'a lease of each server');
      return (await leases()).join(', ');
    },
  },
  {
    name: 'agents count leases',
    async run({ way }) {
      // Until now, servers said their number too.
      await changeServers({ leases: true, count: false });
      await endLeaving();
      return sessionsAre(way, AGENTS);
    },
  },
  {
    name: "ANP's agent counts leases",
    async run({ way }) {
      await apply(await anpAgent());
      await rolledOut('isthmus-agent', `deployment/${ANP}`);
      return sessionsAre(way, AGENTS + 1);
    },
  },
  {
    name: 'the lease of a server that is gone is deleted, and counted again when it is back',
    async run({ way }) {
      const name = `${SERVER}${CONTROL_PLANES.at(-1)?.suffix}`;
      const [pod, all] = [readPod(manifestOf(name)), await leases()];
      removePod(name);
      await until(async () => (await leases()).length === all.length - 1, { what: 'two leases', deadline: LEASE_MS });
      writePod(pod);
      await nextStatic(name, '');
      await until(async () => (await leases()).length === all.length, 'three leases');
      return sessionsAre(way, AGENTS + 1);
    },
  },
];

async function changeServers(options: Parameters<typeof servers>[0]): Promise<void> {
  const changes = servers(options).map((pod) => change(pod.metadata.name, undefined, (old) => Object.assign(old, pod)));
  await Promise.all(changes);
}

/** Agents that leave with a tunnel to an aggregated API, which is asked each 30 s, would stay for a day: docs/OPERATE.md. */
async function endLeaving(): Promise<void> {
  const leaving = '{range .items[?(@.metadata.deletionTimestamp)]}{.status.containerStatuses[0].containerID} {end}';
  const containers = await kubectl(['-n', 'isthmus-agent', 'get', 'pods', `-o=jsonpath=${leaving}`]);
  for (const id of containers.split(' ').filter(Boolean)) await kill(id);
}

function leases(): Promise<string[]> {
  return namesOf('kube-system', 'leases', `k8s-app=${SERVER}`);
}

/** The overlay of the recipe's README. kustomize takes no absolute paths. */
async function applyComponent(directory: string): Promise<void> {
  const overlay = join(directory, 'overlay');
  mkdirSync(overlay, { recursive: true });
  const recipe = relative(overlay, join(K8S, 'recipes/kubeadm-ha'));
  writeFileSync(join(overlay, 'kustomization.yaml'), `resources: [${recipe}]\ncomponents: [${recipe}/leases]\n`);
  await kubectl(['apply', '-k', overlay]);
  await rolledOut('isthmus-agent', 'deployment/agent');
}

/** Our agents' Deployment with ANP's image, and the flags that ANP's agent has. */
async function anpAgent(): Promise<object> {
  const ours = JSON.parse(await kubectl(['-n', 'isthmus-agent', 'get', 'deployment', 'agent', '-o=json']));
  const [container] = ours.spec.template.spec.containers;
  assert.ok(container.args.includes('--count-server-leases=true'));
  container.image = anpImage('agent');
  container.command = ['/proxy-agent'];
  container.args = container.args.filter((flag: string) => !flag.startsWith('--log-format='));
  const labels = { app: ANP };
  ours.spec.template.metadata = { labels };
  const { strategy, template } = ours.spec;
  template.spec.topologySpreadConstraints = [];
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: ANP, namespace: 'isthmus-agent' },
    spec: { replicas: 1, strategy, selector: { matchLabels: labels }, template },
  };
}
