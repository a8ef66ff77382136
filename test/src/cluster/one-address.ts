import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { balance, type Member, type Scope, until } from '../harness/index.ts';
import { startPlane } from '../rig/plane.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import { type Command, must } from './command.ts';
import { SOCKET } from './control-planes.ts';
import { apply, kubectl, kubectlArgs, rolledOut } from './kubectl.ts';
import type { Node } from './node.ts';
import { NAMESPACE } from './probe.ts';
import { HOLDER, K8S, SERVER } from './recipe.ts';
import { Session, SILENT_MS } from './session.ts';
import { ADDRESS } from './settings.ts';
import { endStatic, restartApiServer } from './static-pods.ts';
import type { Check, Fault, Ground, Plan } from './step.ts';
import { joinCluster, PODS, podNetwork, startWorker, strayPackets, WORKER } from './worker.ts';

const RECIPE = join(K8S, 'recipes/one-address/agents.yaml');
/** What the recipe calls the plane and the API server. */
const [AGENTS, API_SERVER] = ['acme.plane.example', 'api.acme.plane.example'];
/** The only address and port that the worker reaches. */
const PLANE = { host: '192.0.2.20', port: 443, names: [AGENTS, API_SERVER] };
/** The address that the API server advertises in the recipe, and that of its Service in the cluster. */
const [ADVERTISED, SERVICE] = ['172.31.0.1', '10.197.0.1'];
const DNS = '10.197.0.10';
const ROLLOUT_MS = 180_000;
/** For how long hubs are killed in turns. */
const TURNS_MS = 180_000;
const KUBECONFIG = '--kubeconfig=/etc/kubernetes/admin.conf';

/** A worker behind one address of a plane of its own, which is beside the cluster's control plane. */
interface Site {
  readonly worker: Node;
  readonly hubs: readonly Member[];
  readonly gateway: Member;
}

const NOTHING_ELSE: Check = {
  name: 'nothing tried another way',
  async run() {
    const stray = await strayPackets();
    assert.equal(stray, 0);
    return `${stray} packets`;
  },
};

/** k8s/recipes/one-address: a worker that reaches one address and port of a plane, by which its API server reaches it, too. */
export const oneAddress: Plan = async (ground) => {
  for (const args of [
    ['address', 'add', `${PLANE.host}/24`, 'dev', 'node0'],
    // Not every kernel has dummy interfaces.
    ['link', 'add', 'api0', 'type', 'bridge'],
    ['address', 'add', `${ADVERTISED}/32`, 'dev', 'api0'],
    ['link', 'set', 'api0', 'up'],
  ])
    await must(['ip', ...args]);
  writeFileSync('/etc/hosts', `${readFileSync('/etc/hosts', 'utf8')}${PLANE.host} ${PLANE.names.join(' ')}\n`);
  for (const name of [SERVER, HOLDER]) await endStatic(name);
  await kubectl(['delete', 'namespace', 'isthmus-agent', '--wait=false']);
  const { hubs, gateway, authority } = await plane(ground.scope);
  await restartApiServer(({ spec: { containers } }) => {
    const [container] = containers;
    container.command = container.command.map((flag) => flag.replace(/(?<=^--advertise-address=).*/, ADVERTISED));
  });
  await kubectl(['-n', 'kube-system', 'create', 'configmap', 'hub-ca', `--from-file=ca.crt=${authority}`]);
  const worker = await joinWorker(ground);
  await moveToWorker();
  return [...OPERATIONS, METRICS, hubsInTurns({ worker, hubs, gateway }), NOTHING_ELSE];
};

/** A gateway and two hubs behind a balancer at the plane's address. */
async function plane(scope: Scope) {
  const directory = await TenantsDirectory.create(scope);
  const acme = await directory.add('acme', {
    agents: [
      {
        tokens: {
          issuer: 'https://kubernetes.default.svc.cluster.local',
          audience: 'system:konnectivity-server',
          keys: '/etc/kubernetes/pki/sa.pub',
          subject: 'system:serviceaccount:kube-system:konnectivity-agent',
        },
      },
    ],
    callers: [{ unixSocket: join(SOCKET, 'konnectivity-server.socket'), name: 'kube-apiserver' }],
    apiServer: { names: [API_SERVER], addresses: [`${ADDRESS}:6443`] },
    claims: { ipv4: [WORKER] },
  });
  const { hubs, gateways, agentPorts } = await startPlane(scope, {
    hubs: 2,
    gateways: 1,
    agents: 0,
    planeFlags: { 'tenants-dir': directory.path },
    gatewayFlags: { 'uds-name': undefined },
  });
  const backends = agentPorts.map((port) => ({ host: '127.0.0.1', port }));
  await balance(scope, PLANE, backends);
  return { hubs, gateway: gateways[0] as Member, authority: acme.cluster.cert };
}

/** The recipe's kubelet, kube-proxy and agent find the API server by its name. */
async function joinWorker(ground: Ground): Promise<Node> {
  for (const [namespace, name] of [
    ['kube-public', 'cluster-info'],
    ['kube-system', 'kube-proxy'],
  ] as const)
    await changeMap(namespace, name, (text) => text.replaceAll(`https://${ADDRESS}:6443`, `https://${API_SERVER}:443`));
  const worker = await startWorker(ground, PLANE);
  const token = await must(['kubeadm', 'token', 'create', '--print-join-command', KUBECONFIG]);
  await joinCluster(worker, ground.group, token, `${API_SERVER}:443`);
  await apply(readFileSync(RECIPE, 'utf8').replace('=10.244.0.0/16', `=${PODS}`));
  const ready = ['wait', '--for=condition=Ready', 'node/worker', `--timeout=${ROLLOUT_MS / 1000}s`];
  await kubectl(ready, { deadline: ROLLOUT_MS + 5000 });
  for (const name of ['kube-proxy', 'konnectivity-agent']) await rolledOut('kube-system', `daemonset/${name}`);
  return worker;
}

/** Changes the texts of a ConfigMap. */
async function changeMap(namespace: string, name: string, change: (text: string) => string): Promise<void> {
  const map = JSON.parse(await kubectl(['-n', namespace, 'get', 'configmap', name, '-o=json']));
  for (const [key, text] of Object.entries(map.data as Record<string, string>)) map.data[key] = change(text);
  await kubectl(['replace', '-f', '-'], { input: JSON.stringify(map) });
}

/** CoreDNS, which is a client of `kubernetes.default`, and the probe. */
async function moveToWorker(): Promise<void> {
  // The worker reaches no other resolver.
  await changeMap('kube-system', 'coredns', (text) =>
    text.replace(/^ *forward [^{\n]*(\{[^}]*\})?\n/m, '').replace(/^ *loop *\n/m, ''),
  );
  const there = { spec: { template: { spec: { nodeSelector: { 'kubernetes.io/hostname': 'worker' } } } } };
  const moved = [
    ['kube-system', 'coredns', 'k8s-app=kube-dns'],
    [NAMESPACE, 'probe', 'app=probe'],
    [NAMESPACE, 'writer', 'app=writer'],
  ] as const;
  for (const [namespace, name] of moved)
    await kubectl(['-n', namespace, 'patch', 'deployment', name, '-p', JSON.stringify(there)]);
  for (const [namespace, name, selector] of moved) {
    await rolledOut(namespace, `deployment/${name}`);
    const nodes = ['-n', namespace, 'get', 'pods', '-l', selector, '-o=jsonpath={.items[*].spec.nodeName}'];
    const all = async () => (await kubectl(nodes)).split(' ').every((node) => node === 'worker');
    await until(all, { what: `all pods of ${name} at the worker`, deadline: ROLLOUT_MS });
  }
}

/** kubectl for the worker, with the administrator's credentials. */
function clientTo(server: string, directory: string): Command {
  const file = join(directory, 'admin.conf');
  copyFileSync('/etc/kubernetes/admin.conf', file);
  return kubectlArgs([`--kubeconfig=${file}`, `--server=${server}`]);
}

/** Under load, with two watches, of a pod and of the node, and the informers of CoreDNS, which is a pod. */
function hubsInTurns({ worker, hubs, gateway }: Site): Fault {
  return {
    name: 'hubs killed in turns for three minutes',
    async commit({ scope, directory, short, strike }) {
      const watching = ['-n', 'default', 'get', 'configmaps', '--watch', '--output=name'];
      const ofPod = [...(await podNetwork(worker)), ...clientTo(`https://${SERVICE}`, directory), ...watching];
      const ofNode = [...worker.inside, ...clientTo(`https://${ADVERTISED}:6443`, directory), ...watching];
      const watches = [ofPod, ofNode].map((command) => new Session(scope, command));
      let changes = 0;
      const seen = async (what: string) => {
        const name = `change-${++changes}`;
        await apply({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' } });
        const all = () => watches.every(({ lines }) => lines.includes(`configmap/${name}`));
        const hopeless = () => (watches.every(({ ended }) => !ended) ? undefined : 'a watch has ended');
        await until(all, { what: `${name} in both watches, ${what}`, hopeless });
      };
      const ready: Command = ['curl', '--silent', 'http://127.0.0.1:8093/readyz?verbose'];
      const linked = () =>
        until(async () => / 2 hubs/.test(await worker.must(ready)), {
          what: "the agent's links to both hubs",
          deadline: SILENT_MS,
        });
      await linked();
      await seen('at first');
      const ofAgent = async () =>
        (await gateway.tunnels()).filter(({ caller }) => caller.startsWith('acme/agent/')).map(({ dialId }) => dialId);
      const before = await ofAgent();
      const end = performance.now() + (short ? 0 : TURNS_MS);
      for (let turn = 0; turn < hubs.length || performance.now() < end; turn++) {
        const hub = hubs[turn % hubs.length] as Member;
        await strike(() => hub.kill());
        await seen(`after turn ${turn}`);
        await hub.restart();
        await linked();
        await seen(`after the hub of turn ${turn} is back`);
      }
      const after = new Set(await ofAgent());
      const lost = before.filter((id) => !after.has(id));
      assert.deepEqual(lost, [], `${lost.length} of ${before.length} connections of pods are others now`);
      assert.ok(watches.every(({ ended }) => !ended));
      await kubectl(['-n', 'default', 'create', 'service', 'clusterip', 'late', '--tcp=80']);
      const resolved = async () => /^10\.197\./.test(await worker.must([process.execPath, '-e', LOOKUP]));
      await until(resolved, { what: 'a new Service in the DNS of the worker', deadline: SILENT_MS });
    },
  };
}

/** A program that asks the worker's CoreDNS. */
const LOOKUP = `const resolver = new (require('node:dns').Resolver)({ timeout: 2000, tries: 1 });
resolver.setServers(['${DNS}']);
resolver.resolve4('late.default.svc.cluster.local', (error, found) => console.log(error?.code ?? found[0]));`;
