import { readFileSync } from 'node:fs';
import { until } from '../../harness/index.ts';
import { containerOf, killStatic, kubectl, nextStatic, restarted, tryKubectl } from '../kubernetes.ts';
import { HOLDER, rolledOut, SERVER } from '../recipe.ts';
import { manifestOf, writeManifest } from '../static-pods.ts';
import { putAnp } from '../upstream.ts';
import type { Fault, Scene } from './fault.ts';

/** The longest grace period of k8s/base but for agents, which wait for their tunnels for a day, and some more. */
const DRAIN_MS = 180_000;

const DRAIN_NODE_S = 20;
/** Longer than what drains keeps idle connections (--drain-idle-timeout). */
const AGAIN_MS = 180_000;

const AGENTS = { namespace: 'isthmus-agent', name: 'agent', selector: 'app.kubernetes.io/name=proxy-agent' };
const HUBS = { namespace: 'isthmus-plane', name: 'hub', selector: 'app.kubernetes.io/name=backend-hub' };
const GATEWAYS = { namespace: 'isthmus-plane', name: 'gateway', selector: 'app.kubernetes.io/name=frontend-gw' };

type Deployment = typeof AGENTS;

export const agentsRolled: Fault = { name: 'agents rolled', commit: () => restart(AGENTS) };

const agentsScaled: Fault = {
  name: 'agents scaled to 3, 1 and 3',
  async commit() {
    for (const replicas of [3, 1, 3]) await scale(replicas);
  },
};

/** As a drain of its node asks for it. */
const agentEvicted: Fault = {
  name: 'an agent evicted',
  async commit() {
    const [name = ''] = await podsOf(AGENTS, false);
    const { namespace } = AGENTS;
    const eviction = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace } };
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/eviction`;
    await kubectl(['create', '--raw', path, '-f', '-'], { input: JSON.stringify(eviction) });
    await rolledOut(namespace, AGENTS.name);
  },
};

/** There is only one node, so the budget keeps the last agent, and the drain ends by its time-out. */
const nodeDrained: Fault = {
  name: 'the node drained of agents',
  async commit() {
    const only = `--pod-selector=${AGENTS.selector}`;
    await tryKubectl([
      'drain',
      'node',
      '--ignore-daemonsets',
      '--delete-emptydir-data',
      only,
      `--timeout=${DRAIN_NODE_S}s`,
    ]);
    await kubectl(['uncordon', 'node']);
    await rolledOut(AGENTS.namespace, AGENTS.name);
  },
};

export const agentDeleted: Fault = {
  name: 'an agent force-deleted',
  mayCut: true,
  async commit({ load }) {
    const [pod = ''] = await podsOf(AGENTS, false);
    const force = ['--grace-period=0', '--force'];
    await load.strike(() => kubectl(['-n', AGENTS.namespace, 'delete', 'pod', pod, ...force]));
    await rolledOut(AGENTS.namespace, AGENTS.name);
  },
};

const kubeletRestarted: Fault = {
  name: 'kubelet restarted',
  // It ends connections that it has accepted, for a moment nothing listens there, and then it does not know its pods yet.
  mayFail:
    /connection reset by peer|: EOF$|:10250: connect: connection refused|unable to upgrade connection: pod does not exist/,
  mayCut: true,
  async commit({ kubernetes }) {
    await kubernetes.restartKubelet();
    await until(
      async () => (await tryKubectl(['get', '--raw', '/api/v1/nodes/node/proxy/healthz'])).status === 0,
      'the kubelet',
    );
  },
};

const serverChanged: Fault = {
  name: 'the static pod changed',
  async commit() {
    const [before, path] = [await containerOf(SERVER), manifestOf(SERVER)];
    writeManifest(path, restarted(readFileSync(path, 'utf8')));
    await nextStatic(SERVER, before);
  },
};

const serverKilled: Fault = {
  name: 'the server SIGKILLed',
  async commit({ load }) {
    await nextStatic(SERVER, await load.strike(() => killStatic(SERVER)));
  },
};

/** None of these ends a tunnel. */
const HARMLESS = [serverChanged, serverKilled, agentsRolled, agentsScaled, agentEvicted, nodeDrained];

/** What is done to the static pod of one control-plane node, and to agents. */
export const OF_THE_SERVER: readonly Fault[] = [
  ...HARMLESS,
  {
    name: 'all of these for three minutes',
    async commit(scene) {
      const over = performance.now() + (scene.short ? 0 : AGAIN_MS);
      do for (const each of HARMLESS) await each.commit(scene);
      while (performance.now() < over);
    },
  },
  {
    name: 'server and agents changed at once',
    commit: async (scene) => void (await Promise.all([serverChanged.commit(scene), restart(AGENTS)])),
  },
  agentDeleted,
  {
    name: 'the API server SIGKILLed',
    // It is the one that kubectl calls.
    mayFail: /./,
    mayCut: true,
    commit: ({ kubernetes }) => kubernetes.restartApiServer(),
  },
  kubeletRestarted,
];

/** What is done to a whole plane. */
export const OF_THE_PLANE: readonly Fault[] = [
  agentsRolled,
  { name: 'hubs rolled', commit: (scene) => roll(HUBS, scene) },
  { name: 'gateways rolled', mayCut: true, commit: (scene) => roll(GATEWAYS, scene) },
  agentDeleted,
  kubeletRestarted,
];

let putBack = async () => {};

/** What callers notice with ANP's server in the place of ours, without what holds its socket. The agents stay ours. */
export const BESIDE_ANP: readonly Fault[] = [serverChanged, serverKilled].map(({ name, commit }) => ({
  name: `${name}, of ANP`,
  mayFail: /./,
  mayCut: true,
  commit,
  comparison: {
    begin: async () => {
      putBack = await putAnp(SERVER, HOLDER);
    },
    end: () => putBack(),
  },
}));

async function restart({ namespace, name }: Deployment): Promise<void> {
  await kubectl(['-n', namespace, 'rollout', 'restart', `deployment/${name}`]);
  await rolledOut(namespace, name);
}

async function scale(replicas: number): Promise<void> {
  const { namespace, name } = AGENTS;
  await kubectl(['-n', namespace, 'scale', `deployment/${name}`, `--replicas=${replicas}`]);
  await rolledOut(namespace, name);
}

/** Replaces all pods, and waits until the old ones are gone. */
async function roll(deployment: Deployment, { short }: Scene): Promise<void> {
  const { name } = deployment;
  const before = await podsOf(deployment);
  await restart(deployment);
  if (short) return;
  const gone = async () => (await podsOf(deployment)).every((pod) => !before.includes(pod));
  await until(gone, { what: `the end of the old pods of ${name}`, deadline: DRAIN_MS });
}

/** Returns the names of its pods. @param leaving whether with those that are about to end, as agents are for up to a day */
async function podsOf({ namespace, selector }: Deployment, leaving = true): Promise<string[]> {
  const { items } = JSON.parse(await kubectl(['-n', namespace, 'get', 'pods', '-l', selector, '-o=json']));
  return (items as Pod[])
    .filter(({ metadata }) => leaving || metadata.deletionTimestamp === undefined)
    .map(({ metadata }) => metadata.name);
}

interface Pod {
  readonly metadata: { readonly name: string; readonly deletionTimestamp?: string };
}
