import { until } from '../../harness/index.ts';
import { kubectl, namesOf, rolledOut, tryKubectl } from '../kubectl.ts';
import { HOLDER, SERVER } from '../recipe.ts';
import { API_SERVER, change, donePod, killStatic } from '../static-pods.ts';
import type { Fault, Ground } from '../step.ts';
import { putAnp } from '../upstream.ts';

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
    const { namespace, name } = AGENTS;
    for (const replicas of [3, 1, 3]) {
      await kubectl(['-n', namespace, 'scale', `deployment/${name}`, `--replicas=${replicas}`]);
      await rolledOut(namespace, `deployment/${name}`);
    }
  },
};

/** There is only one node, so the budget keeps the last agent, and the drain ends by its time-out. */
const nodeDrained: Fault = {
  name: 'the node drained of agents',
  async commit() {
    const only = ['--ignore-daemonsets', '--delete-emptydir-data', `--pod-selector=${AGENTS.selector}`];
    await tryKubectl(['drain', 'node', ...only, `--timeout=${DRAIN_NODE_S}s`]);
    await kubectl(['uncordon', 'node']);
    await rolledOut(AGENTS.namespace, `deployment/${AGENTS.name}`);
  },
};

export const agentDeleted: Fault = {
  name: 'an agent force-deleted',
  mayCut: true,
  mayCutAdmissions: true,
  async commit({ strike }) {
    const { namespace, name, selector } = AGENTS;
    // The newest is none that leaves.
    const newest = (await namesOf(namespace, 'pods', selector)).at(-1) ?? '';
    const uid = await kubectl(['-n', namespace, 'get', 'pod', newest, '-o=jsonpath={.metadata.uid}']);
    await strike(async () => {
      await kubectl(['-n', namespace, 'delete', 'pod', newest, '--grace-period=0', '--force']);
      // The kubelet gives it 2 s nevertheless.
      await donePod(uid);
    });
    await rolledOut(namespace, `deployment/${name}`);
  },
};

const kubeletRestarted: Fault = {
  name: 'kubelet restarted',
  // It ends connections that it has accepted, for a moment nothing listens there, and then it does not know its pods yet.
  mayFail:
    /connection reset by peer|: EOF$|:10250: connect: connection refused|unable to upgrade connection: pod does not exist/,
  mayCut: true,
  async commit({ node }) {
    await node.restartKubelet();
    await until(() => kubectl(['get', '--raw', '/api/v1/nodes/node/proxy/healthz']), 'the kubelet');
  },
};

const serverChanged: Fault = { name: 'the static pod changed', commit: ({ replaced }) => change(SERVER, replaced) };

const serverKilled: Fault = { name: 'the server SIGKILLed', commit: ({ strike }) => killStatic(SERVER, strike) };

/** None of these ends a tunnel. */
const HARMLESS = [serverChanged, serverKilled, agentsRolled, agentsScaled, nodeDrained];

/** What is done to the static pod of one control-plane node, and to agents. */
export const OF_THE_SERVER: readonly Fault[] = [
  ...HARMLESS,
  {
    name: 'all of these for three minutes',
    async commit(ground) {
      const over = performance.now() + (ground.short ? 0 : AGAIN_MS);
      do for (const each of HARMLESS) await each.commit(ground);
      while (performance.now() < over);
    },
  },
  {
    name: 'server and agents changed at once',
    commit: (ground) => Promise.all([serverChanged.commit(ground), restart(AGENTS)]),
  },
  agentDeleted,
  {
    name: 'the API server SIGKILLed',
    // It is the one that kubectl calls.
    mayFail: /./,
    mayCut: true,
    commit: () => killStatic(API_SERVER),
  },
  kubeletRestarted,
];

/** What is done to a whole plane. */
export const OF_THE_PLANE: readonly Fault[] = [
  agentsRolled,
  { name: 'hubs rolled', commit: (ground) => roll(HUBS, ground) },
  { name: 'gateways rolled', mayCut: true, commit: (ground) => roll(GATEWAYS, ground) },
  agentDeleted,
  kubeletRestarted,
];

/** What callers notice with ANP's server in the place of ours, without what holds its socket. The agents stay ours. */
export const BESIDE_ANP: readonly Fault[] = [serverChanged, serverKilled].map(({ name, commit }) => ({
  name: `${name}, of ANP`,
  mayFail: /./,
  mayCut: true,
  instead: () => putAnp(SERVER, HOLDER),
  commit,
}));

async function restart({ namespace, name }: Omit<Deployment, 'selector'>): Promise<void> {
  await kubectl(['-n', namespace, 'rollout', 'restart', `deployment/${name}`]);
  await rolledOut(namespace, `deployment/${name}`);
}

/** Replaces all pods, and waits until the old ones are gone. */
async function roll({ namespace, name, selector }: Deployment, { short }: Ground): Promise<void> {
  const before = await namesOf(namespace, 'pods', selector);
  await restart({ namespace, name });
  if (short) return;
  const gone = async () => (await namesOf(namespace, 'pods', selector)).every((pod) => !before.includes(pod));
  await until(gone, { what: `the end of the old pods of ${name}`, deadline: DRAIN_MS });
}
