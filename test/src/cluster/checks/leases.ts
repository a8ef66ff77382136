import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { until } from '../../harness/index.ts';
import { CONTROL_PLANES } from '../control-planes.ts';
import { apply, containerOf, kubectl, namesOf, nextStatic } from '../kubernetes.ts';
import { K8S, rolledOut } from '../recipe.ts';
import { manifestOf, readPod, removePod, type StaticPod, writePod } from '../static-pods.ts';
import { SERVER, servers } from '../three.ts';
import { anpImage } from '../upstream.ts';
import type { Way } from '../way.ts';
import type { Check } from './check.ts';
import { pagesOf, sample } from './metrics.ts';

const SESSIONS = 'konnectivity_network_proxy_server_ready_backend_connections';
const AGENTS = 2;
const ANP = 'agent-of-anp';
const LEASE_MS = 180_000;

/** recipes/kubeadm-ha with its component `leases`. Nothing but leases says then that there are three servers. */
export const LEASES: readonly Check[] = [
  {
    name: 'servers hold leases',
    async run({ directory }) {
      await runServers(servers({ leases: true }));
      await applyComponent(directory);
      await until(async () => (await leases()).length === CONTROL_PLANES.length, 'a lease of each server');
      return (await leases()).join(', ');
    },
  },
  {
    name: 'agents count leases',
    async run({ way }) {
      // Until now, servers said their number too.
      await runServers(servers({ leases: true, count: false }));
      return sessionsAre(way, AGENTS);
    },
  },
  {
    name: "ANP's agent counts leases",
    async run({ way }) {
      await apply(JSON.stringify(await anpAgent()));
      await rolledOut('isthmus-agent', ANP);
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

/** Changes all servers, and waits until they are ready. */
async function runServers(pods: readonly StaticPod[]): Promise<void> {
  const before = await Promise.all(pods.map(({ metadata }) => containerOf(metadata.name)));
  for (const pod of pods) writePod(pod);
  await Promise.all(pods.map(({ metadata }, index) => nextStatic(metadata.name, before[index] ?? '')));
}

/** Waits until every server has a session with each of so many agents. */
async function sessionsAre(way: Way, agents: number): Promise<string> {
  const counts = async () => (await pagesOf(way)).map((page) => sample(page, SESSIONS, {}));
  // Agents that leave keep theirs for 45 s at least, as long as an API server keeps an idle connection (--drain-idle-timeout).
  await until(async () => (await counts()).every((count) => count === agents), {
    what: `${agents} sessions with each server`,
    deadline: LEASE_MS,
  });
  return `${(await counts()).join(', ')} sessions`;
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
  await rolledOut('isthmus-agent', 'agent');
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
