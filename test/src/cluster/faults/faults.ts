import { readFileSync } from 'node:fs';
import { until } from '../../harness/index.ts';
import { containerOf, killStatic, kubectl, nextStatic, restarted, tryKubectl } from '../kubernetes.ts';
import { rolledOut } from '../recipe.ts';
import { writeManifest } from '../static-pods.ts';
import type { Fault, Scene } from './fault.ts';

const SERVER = '/etc/kubernetes/manifests/proxy-server.yaml';
/** The longest grace period of k8s/base, and some more. */
const DRAIN_MS = 180_000;

const AGENTS = { namespace: 'isthmus-agent', name: 'agent', selector: 'app.kubernetes.io/name=proxy-agent' };
const HUBS = { namespace: 'isthmus-plane', name: 'hub', selector: 'app.kubernetes.io/name=backend-hub' };
const GATEWAYS = { namespace: 'isthmus-plane', name: 'gateway', selector: 'app.kubernetes.io/name=frontend-gw' };

type Deployment = typeof AGENTS;

export const agentsRolled: Fault = { name: 'agents rolled', commit: (scene) => roll(AGENTS, scene) };

export const agentDeleted: Fault = {
  name: 'an agent force-deleted',
  async commit({ load }) {
    const [pod = ''] = await podsOf(AGENTS);
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
  async commit({ kubernetes }) {
    await kubernetes.restartKubelet();
    await until(
      async () => (await tryKubectl(['get', '--raw', '/api/v1/nodes/node/proxy/healthz'])).status === 0,
      'the kubelet',
    );
  },
};

export const serverChanged: Fault = {
  name: 'the static pod changed',
  async commit() {
    const before = await containerOf('proxy-server');
    writeManifest(SERVER, restarted(readFileSync(SERVER, 'utf8')));
    await nextStatic('proxy-server', before);
  },
};

export const serverKilled: Fault = {
  name: 'the server SIGKILLed',
  async commit({ load }) {
    await nextStatic('proxy-server', await load.strike(() => killStatic('proxy-server')));
  },
};

/** What is done to the static pod of one control-plane node. */
export const OF_THE_SERVER: readonly Fault[] = [
  agentsRolled,
  agentDeleted,
  serverChanged,
  serverKilled,
  {
    name: 'the API server SIGKILLed',
    // It is the one that kubectl calls.
    mayFail: /./,
    commit: ({ kubernetes }) => kubernetes.restartApiServer(),
  },
  kubeletRestarted,
];

/** What is done to a whole plane. */
export const OF_THE_PLANE: readonly Fault[] = [
  agentsRolled,
  { name: 'hubs rolled', commit: (scene) => roll(HUBS, scene) },
  { name: 'gateways rolled', commit: (scene) => roll(GATEWAYS, scene) },
  agentDeleted,
  kubeletRestarted,
];

async function roll(deployment: Deployment, { short }: Scene): Promise<void> {
  const { namespace, name } = deployment;
  const before = await podsOf(deployment);
  await kubectl(['-n', namespace, 'rollout', 'restart', `deployment/${name}`]);
  await rolledOut(namespace, name);
  if (short) return;
  const gone = async () => (await podsOf(deployment)).every((pod) => !before.includes(pod));
  await until(gone, { what: `the end of the old pods of ${name}`, deadline: DRAIN_MS });
}

async function podsOf({ namespace, selector }: Deployment): Promise<string[]> {
  const names = await kubectl([
    '-n',
    namespace,
    'get',
    'pods',
    '-l',
    selector,
    '-o=jsonpath={.items[*].metadata.name}',
  ]);
  return names.split(' ').filter(Boolean);
}
