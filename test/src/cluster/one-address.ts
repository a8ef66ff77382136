import assert from 'node:assert/strict';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { startRedis } from '@isthmus/directory/testing/servers';
import {
  balance,
  gatewayMember,
  hubMember,
  isUp,
  type Member,
  newTrust,
  peerFlags,
  type Scope,
  times,
  until,
} from '../harness/index.ts';
import { TenantsDirectory } from '../tenants/tenants-directory.ts';
import type { Check } from './checks/check.ts';
import { METRICS } from './checks/metrics.ts';
import { OPERATIONS } from './checks/operations.ts';
import { must, run } from './command.ts';
import { SOCKET } from './control-planes.ts';
import type { Ground, Plan } from './ground.ts';
import { apply, endStatic, kubectl, kubectlArgs } from './kubernetes.ts';
import { NAMESPACE } from './probe.ts';
import { HOLDER, K8S, rolledOut, SERVER } from './recipe.ts';
import { Session, SILENT_MS } from './session.ts';
import { ADDRESS } from './settings.ts';
import { PODS, WORKER, Worker } from './worker.ts';

const RECIPE = join(K8S, 'recipes/one-address/agents.yaml');
/** The only address and port that the worker reaches, and what the recipe calls it. */
const PLANE = { host: '192.0.2.20', port: 443 };
const [AGENTS, API_SERVER, OTHER] = ['acme.plane.example', 'api.acme.plane.example', 'api.globex.plane.example'];
/** The address that the API server advertises in the recipe, and that of its Service in the cluster. */
const [ADVERTISED, SERVICE] = ['172.31.0.1', '10.197.0.1'];
const DNS = '10.197.0.10';
const ROLLOUT_MS = 180_000;
/** For how long hubs are killed in turns. */
const TURNS_MS = 180_000;

/** A worker behind one address of a plane of its own, which is beside the cluster's control plane. */
interface Site {
  readonly worker: Worker;
  readonly hubs: readonly Member[];
  readonly gateway: Member;
}

/** k8s/recipes/one-address: a worker that reaches one address and port of a plane, by which its API server reaches it, too. */
export function oneAddress(): Plan {
  let site: Site | undefined;
  const check = (name: string, run: (site: Site, scope: Scope, directory: string) => Promise<string>): Check => ({
    name,
    run({ scope, directory }) {
      assert.ok(site);
      return run(site, scope, directory);
    },
  });
  return {
    async prepare(ground) {
      site = await prepare(ground);
    },
    steps: [
      ...OPERATIONS.filter(({ name }) => name !== 'node proxy'),
      check('node proxy', async () => {
        const page = await kubectl(['get', '--raw', '/api/v1/nodes/worker/proxy/metrics/resource']);
        const [found] = page.match(/^node_cpu_usage_seconds_total \S+/m) ?? [];
        assert.ok(found, page);
        return found;
      }),
      ...METRICS.slice(0, 1),
      check('two tenants at one port', twoTenants),
      check('a pod reaches the API server by its Service', async ({ worker }, _scope, directory) => {
        const asked = kubectlArgs([...clientTo(`https://${SERVICE}`, directory), 'get', '--raw=/version']);
        const { gitVersion } = JSON.parse(await must([...(await worker.podNetwork()), ...asked]));
        return gitVersion;
      }),
      check('watches go on while hubs are killed in turns', hubsInTurns),
      check('nothing tried another way', async ({ worker }) => {
        const stray = await worker.strayPackets();
        assert.equal(stray, 0);
        return `${stray} packets`;
      }),
    ],
  };
}

async function prepare({ kubernetes, directory, group, image, scope }: Ground): Promise<Site> {
  for (const args of [
    ['address', 'add', `${PLANE.host}/24`, 'dev', 'node0'],
    // Not every kernel has dummy interfaces.
    ['link', 'add', 'api0', 'type', 'bridge'],
    ['address', 'add', `${ADVERTISED}/32`, 'dev', 'api0'],
    ['link', 'set', 'api0', 'up'],
  ])
    await must(['ip', ...args]);
  const names = [AGENTS, API_SERVER, OTHER];
  writeFileSync('/etc/hosts', `${readFileSync('/etc/hosts', 'utf8')}${PLANE.host} ${names.join(' ')}\n`);
  for (const name of [SERVER, HOLDER]) await endStatic(name);
  await kubectl(['delete', 'namespace', 'isthmus-agent', '--wait=false']);
  const { hubs, gateway, authority } = await plane(scope);
  await kubernetes.replaceApiServer((manifest) => manifest.replace(/(--advertise-address)=.*/, `$1=${ADVERTISED}`));
  for (const [namespace, name] of [
    ['kube-public', 'cluster-info'],
    ['kube-system', 'kube-proxy'],
  ] as const)
    await changeMap(namespace, name, (text) => text.replaceAll(`https://${ADDRESS}:6443`, `https://${API_SERVER}:443`));
  const worker = await Worker.start(scope, { directory, group, image, plane: PLANE, names });
  await worker.join(
    await must(['kubeadm', 'token', 'create', '--print-join-command', KUBECONFIG]),
    `${API_SERVER}:443`,
  );
  await kubectl(['-n', 'kube-system', 'create', 'configmap', 'hub-ca', `--from-file=ca.crt=${authority}`]);
  await apply(readFileSync(RECIPE, 'utf8').replace('=10.244.0.0/16', `=${PODS}`));
  const ready = ['wait', '--for=condition=Ready', 'node/worker', `--timeout=${ROLLOUT_MS / 1000}s`];
  await kubectl(ready, { deadline: ROLLOUT_MS + 5000 });
  for (const name of ['kube-proxy', 'konnectivity-agent']) await rolledOut('kube-system', name, 'daemonset');
  await moveToWorker();
  return { worker, hubs, gateway };
}

const KUBECONFIG = '--kubeconfig=/etc/kubernetes/admin.conf';

/** A gateway and two hubs behind a balancer at the plane's address, with two tenants. */
async function plane(scope: Scope) {
  const trust = await newTrust(scope);
  const directory = await TenantsDirectory.create(scope);
  const redis = await startRedis();
  scope.defer(() => redis.stop());
  const [acme, globex] = [await directory.trust('acme'), await directory.trust('globex')];
  const { cert, key } = globex.server;
  const other = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (_, answer) => answer.end('globex'));
  await new Promise<void>((resolve) => other.listen(6444, '127.0.0.1', resolve));
  scope.defer(() => void other.close());
  await directory.write({
    ...acme.file,
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
  await directory.write({ ...globex.file, apiServer: { names: [OTHER], addresses: ['127.0.0.1:6444'] } });
  const flags = { 'redis-url': redis.url, plane: 'cluster', 'tenants-dir': directory.path };
  const hubs = await times(2, (index) => hubMember(scope, trust, `hub-${index}`, { flags }));
  const own = { ...flags, ...(await peerFlags(trust, ['gateway'])), 'uds-name': undefined };
  const { member: gateway } = await gatewayMember(scope, trust, 'gateway', { flags: own });
  for (const { program } of [...hubs.map(({ member }) => member), gateway]) await isUp(program);
  const backends = hubs.map(({ agentPort }) => ({ host: '127.0.0.1', port: agentPort }));
  await balance(scope, PLANE, backends);
  return { hubs: hubs.map(({ member }) => member), gateway, authority: acme.cluster.cert };
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
    await rolledOut(namespace, name);
    const nodes = ['-n', namespace, 'get', 'pods', '-l', selector, '-o=jsonpath={.items[*].spec.nodeName}'];
    const all = async () => (await kubectl(nodes)).split(' ').every((node) => node === 'worker');
    await until(all, { what: `all pods of ${name} at the worker`, deadline: ROLLOUT_MS });
  }
}

async function twoTenants({ worker }: Site): Promise<string> {
  const get = (name: string, path: string) =>
    worker.must(['curl', '--insecure', '--fail', '--silent', '--max-time', '20', `https://${name}${path}`]);
  assert.equal(await get(OTHER, '/'), 'globex');
  const { gitVersion } = JSON.parse(await get(API_SERVER, '/version'));
  return `${OTHER} and ${API_SERVER}, ${gitVersion}`;
}

/** What kubectl needs at the worker: the administrator's credentials, and where the API server is. */
function clientTo(server: string, directory: string): string[] {
  const file = join(directory, 'admin.conf');
  copyFileSync('/etc/kubernetes/admin.conf', file);
  return [`--kubeconfig=${file}`, `--server=${server}`];
}

/** Two watches, of a pod and of the node, and the informers of CoreDNS, which is a pod. */
async function hubsInTurns({ worker, hubs, gateway }: Site, scope: Scope, directory: string): Promise<string> {
  const watching = ['-n', 'default', 'get', 'configmaps', '--watch', '--output=name'];
  const watches = [
    new Session(scope, [...clientTo(`https://${SERVICE}`, directory), ...watching], await worker.podNetwork()),
    new Session(scope, [...clientTo(`https://${ADVERTISED}:6443`, directory), ...watching], worker.inside),
  ];
  const logs = new Session(scope, ['-n', NAMESPACE, 'logs', '-f', '--tail=1', 'deployment/writer']);
  let changes = 0;
  const seen = async (what: string) => {
    const name = `change-${++changes}`;
    await apply(JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' } }));
    const all = () => watches.every(({ lines }) => lines.includes(`configmap/${name}`));
    const hopeless = () => (watches.every(({ ended }) => !ended) ? undefined : 'a watch has ended');
    await until(all, { what: `${name} in both watches, ${what}`, hopeless });
    assert.ok(await logs.goesOn(1), `the logs ended ${what}`);
  };
  const linked = () =>
    until(
      async () => {
        const page = await run([...worker.inside, 'curl', '--silent', 'http://127.0.0.1:8093/readyz?verbose']);
        return / 2 hubs/.test(page.stdout);
      },
      { what: "the agent's links to both hubs", deadline: SILENT_MS },
    );
  await linked();
  await seen('at first');
  const ofAgent = async () =>
    (await gateway.tunnels()).filter(({ caller }) => caller.startsWith('acme/agent/')).map(({ dialId }) => dialId);
  const before = await ofAgent();
  const end = performance.now() + TURNS_MS;
  let turns = 0;
  for (; performance.now() < end; turns++) {
    const hub = hubs[turns % hubs.length] as Member;
    await hub.kill();
    await seen(`after turn ${turns}`);
    await hub.restart();
    await linked();
    await seen(`after the hub of turn ${turns} is back`);
  }
  const after = new Set(await ofAgent());
  const lost = before.filter((id) => !after.has(id));
  assert.deepEqual(lost, [], `${lost.length} of ${before.length} connections of pods are others now`);
  assert.ok(watches.every(({ ended }) => !ended));
  await kubectl(['-n', 'default', 'create', 'service', 'clusterip', 'late', '--tcp=80']);
  const resolved = async () => /^10\.197\./.test(await worker.must([process.execPath, '-e', LOOKUP]));
  await until(resolved, { what: 'a new Service in the DNS of the worker', deadline: SILENT_MS });
  return `${turns} kills, ${changes} changes in two watches, ${before.length} connections of pods stayed`;
}

/** A program that asks the worker's CoreDNS. */
const LOOKUP = `const resolver = new (require('node:dns').Resolver)({ timeout: 2000, tries: 1 });
resolver.setServers(['${DNS}']);
resolver.resolve4('late.default.svc.cluster.local', (error, found) => console.log(error?.code ?? found[0]));`;
