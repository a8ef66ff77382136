import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  agentMember,
  freePort,
  newTrust,
  Relay,
  type Scope,
  scoped,
  sharedByFile,
  split,
  startAgent,
  startServer,
  until,
} from '../harness/index.ts';
import { namespace, networksMissing } from '../rig/network.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';

const run = promisify(execFile);

const noIptables =
  spawnSync('iptables', ['--version']).status === 0 ? false : 'iptables is not installed: apt-get install iptables';

const api = sharedByFile((scope) => KubernetesApi.start(scope));

/** A name in the API server's certificate. */
const NAME = 'kubernetes.default.svc';

/** A hub that leads to the API server, by name and through an agent behind a relay. */
async function ways(scope: Scope) {
  const cluster = await api();
  const trust = await newTrust(scope);
  const server = await startServer(scope, trust, { 'api-server-name': NAME, 'api-server': cluster.address });
  const relay = await new Relay([server.agentPort]).listen();
  scope.defer(() => relay[Symbol.asyncDispose]());
  const port = await freePort();
  const agent = await startAgent(scope, trust, relay.port, { 'api-server-listen': `127.0.0.1:${port}` });
  await agent.waitReady();
  return { cluster, server, relay, byName: toServer(cluster, server.agentPort), byAddress: toServer(cluster, port) };
}

/** What kubectl needs in order to reach an API server there. */
function toServer({ authority }: Pick<KubernetesApi, 'authority'>, port: number): string[] {
  return [
    ...[`--server=https://127.0.0.1:${port}`, `--tls-server-name=${NAME}`],
    ...['--insecure-skip-tls-verify=false', `--certificate-authority=${authority}`],
  ];
}

function configMap(name: string) {
  return { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' }, data: { of: name } };
}

describe("kubectl reaches an API server at the hub's port for agents", { skip: noApiServer }, () => {
  for (const way of ['byName', 'byAddress'] as const)
    test(
      `${way === 'byName' ? 'by its name' : 'through an agent'}: it reads, writes and watches`,
      { timeout: 300_000 },
      scoped(async (scope) => {
        const { cluster, [way]: to } = await ways(scope);
        const version = JSON.parse(await cluster.kubectl(['get', '--raw=/version', ...to])) as { gitVersion: string };
        assert.match(version.gitVersion, /^v\d/);
        const watched = cluster.watch(scope, ['get', 'configmaps', '--watch', '--output=name', ...to]);
        await cluster.kubectl(
          ['apply', '--server-side', '-f', '-', ...to],
          JSON.stringify(configMap(`${way.toLowerCase()}-1`)),
        );
        const saw = (name: string) => watched.said.includes(`configmap/${name}`);
        await until(() => saw(`${way.toLowerCase()}-1`), { what: () => `an event of the watch: ${watched.said}` });
        // 1 MiB in one object: more than any window at first.
        const big = { ...configMap(`${way.toLowerCase()}-big`), data: { of: 'x'.repeat(1_000_000) } };
        await cluster.kubectl(['create', '-f', '-', ...to], JSON.stringify(big));
        const read = await cluster.kubectl(['get', 'configmap', `${way.toLowerCase()}-big`, '--output=json', ...to]);
        assert.equal((JSON.parse(read) as { data: { of: string } }).data.of.length, 1_000_000);
        assert.ok(watched.running);
      }),
    );

  test(
    "a watch through an agent goes on when the agent's links are lost",
    { timeout: 300_000 },
    scoped(async (scope) => {
      const { cluster, relay, byAddress } = await ways(scope);
      const watched = cluster.watch(scope, ['get', 'configmaps', '--watch', '--output=name', ...byAddress]);
      for (const [index, lose] of [() => {}, () => relay.reset(), () => relay.strand()].entries()) {
        lose();
        const name = `lost-${index}`;
        await cluster.apply(configMap(name));
        await until(() => watched.said.includes(`configmap/${name}`), { what: () => `${name}: ${watched.said}` });
      }
      assert.ok(watched.running);
    }),
  );
});

test(
  'watches through an agent go on when a hub is killed',
  { skip: noApiServer || redisMissing(), timeout: 300_000 },
  scoped(async (scope) => {
    const cluster = await api();
    const port = await freePort();
    const { hubs, gateways, agents } = await split(scope, {
      gateways: 1,
      gatewayFlags: { 'api-server': cluster.address },
      agentFlags: { 'api-server-listen': `127.0.0.1:${port}`, 'session-count': 2 },
    });
    const [gateway] = gateways;
    const [agent] = agents;
    const linked = async () => / 2 hubs/.test((await agent?.get('/readyz?verbose'))?.body ?? '');
    await until(linked, { what: 'links to both hubs' });
    const to = toServer(cluster, port);
    const version = () => cluster.kubectl(['get', '--raw=/version', ...to]).then(...[() => true, () => false]);
    for (let calls = 0; calls < 4; ) calls = (await version()) ? calls + 1 : 0;
    // Each hub takes one.
    const watching = ['get', 'configmaps', '--watch', '--output=name', ...to];
    const watches = [cluster.watch(scope, watching), cluster.watch(scope, watching)];
    const see = async (name: string) => {
      await cluster.apply(configMap(name));
      const all = () => watches.every(({ said }) => said.includes(`configmap/${name}`));
      await until(all, { what: () => `${name} in ${watches.map(({ said }) => said).join(' and ')}` });
    };
    await see('before');
    const [first] = hubs;
    first?.program.signal('SIGKILL');
    await see('after-a-hub-was-killed');
    assert.ok(watches.every(({ running }) => running));
    const open = await gateway?.program.metric('isthmus_api_server_connections');
    assert.equal(open?.get('{tenant="default"}'), 2);
  }),
);

/** The address that the API server would advertise, the Service in front of it, and the pods'. */
const [ADVERTISED, SERVICE, NODE, POD, STRANGER] = [
  '172.31.0.1',
  '10.96.0.1',
  '10.244.0.1',
  '10.244.0.2',
  '10.245.0.2',
];

/** A node whose only way out is one address and port, and a pod on it. */
async function node(scope: Scope) {
  const { name, command, wire } = await namespace(scope, ['hub']);
  const { inside, outside } = wire('hub');
  const own = `${name}-pod`;
  const ip = (...args: string[]) => run('ip', args);
  await ip('netns', 'add', own);
  scope.defer(() => void ip('netns', 'del', own));
  await ip('-n', name, 'link', 'add', 'pod', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', own);
  await ip('-n', name, 'address', 'add', `${NODE}/24`, 'dev', 'pod');
  await ip('-n', name, 'link', 'set', 'pod', 'up');
  // Not every kernel has dummy interfaces.
  await ip('-n', name, 'address', 'add', `${ADVERTISED}/32`, 'dev', 'lo');
  await ip('-n', own, 'address', 'add', `${POD}/24`, 'dev', 'eth0');
  await ip('-n', own, 'address', 'add', `${STRANGER}/32`, 'dev', 'eth0');
  await ip('-n', own, 'link', 'set', 'eth0', 'up');
  await ip('-n', own, 'route', 'add', 'default', 'via', NODE);
  await ip('-n', name, 'route', 'add', `${STRANGER}/32`, 'dev', 'pod');
  await ip('-n', name, 'route', 'add', 'default', 'via', outside);
  const iptables = async (...args: string[]) => (await run('ip', ['netns', 'exec', name, 'iptables', ...args])).stdout;
  return {
    host: { command, host: inside },
    hub: outside,
    pod: ['ip', 'netns', 'exec', own],
    /** Lets out what goes to the hub, and drops and counts everything else. */
    async close(port: number): Promise<void> {
      await iptables('-A', 'OUTPUT', '-o', 'lo', '-j', 'ACCEPT');
      await iptables('-A', 'OUTPUT', '-o', 'pod', '-j', 'ACCEPT');
      await iptables('-A', 'OUTPUT', '-d', outside, '-p', 'tcp', '--dport', String(port), '-j', 'ACCEPT');
      // This test asks the agent for its health.
      await iptables('-A', 'OUTPUT', '-d', outside, '-p', 'tcp', '!', '--syn', '-j', 'ACCEPT');
      for (const chain of ['OUTPUT', 'FORWARD']) await iptables('-A', chain, '-j', 'DROP');
      const at = ['-d', SERVICE, '-p', 'tcp', '--dport', '443', '-j', 'DNAT', '--to-destination', `${ADVERTISED}:6443`];
      await iptables('-t', 'nat', '-A', 'PREROUTING', ...at);
    },
    /** How many packets were dropped. */
    async dropped(): Promise<number> {
      const rules = await iptables('-L', '-v', '-x', '-n');
      const drops = rules.split('\n').filter((line) => line.includes(' DROP '));
      assert.equal(drops.length, 2, rules);
      return drops.reduce((sum, line) => sum + Number(line.trim().split(/\s+/)[0]), 0);
    },
  };
}

test(
  'a node whose only way out is a port of the hub reaches its API server, and so do its pods by the address of their Service',
  { skip: noApiServer || networksMissing() || noIptables, timeout: 300_000 },
  scoped(async (scope) => {
    const cluster = await api();
    const trust = await newTrust(scope);
    const machine = await node(scope);
    const { hub } = machine;
    const { cert, key } = await trust.agents.server({ hosts: [{ type: 'ip', value: hub }] });
    const { agentPort } = await startServer(scope, trust, {
      ...{ 'agent-bind-address': hub, 'cluster-cert': cert, 'cluster-key': key },
      ...{ 'api-server-name': NAME, 'api-server': cluster.address },
    });
    await machine.close(agentPort);
    const agent = await agentMember(scope, trust, 'edge-1', agentPort, {
      flags: {
        ...{ 'proxy-server-host': hub, 'health-server-host': machine.host.host },
        ...{ 'api-server-listen': `${ADVERTISED}:6443`, 'api-server-allow': '10.244.0.0/16' },
      },
      place: machine.host,
    });
    await agent.program.waitReady();
    const trusting = [
      ...[`--tls-server-name=${NAME}`, '--insecure-skip-tls-verify=false'],
      `--certificate-authority=${cluster.authority}`,
    ];
    const ways = [
      { what: 'the kubelet, by name', at: `https://${hub}:${agentPort}`, inside: machine.host.command },
      { what: 'the node, by address', at: `https://${ADVERTISED}:6443`, inside: machine.host.command },
      { what: 'a pod, by its Service', at: `https://${SERVICE}`, inside: machine.pod },
    ];
    for (const { what, at, inside } of ways) {
      const version = await cluster.kubectl(['get', '--raw=/version', `--server=${at}`, ...trusting], '', inside);
      assert.match(version, /gitVersion/, what);
    }
    const watching = ['get', 'configmaps', '--watch', '--output=name', `--server=https://${SERVICE}`, ...trusting];
    const watched = cluster.watch(scope, watching, machine.pod);
    await cluster.apply(configMap('for-a-pod'));
    await until(() => watched.said.includes('configmap/for-a-pod'), { what: () => watched.said });
    assert.equal(await machine.dropped(), 0, 'nothing tried another way');

    // Another network's source is not let in.
    const program =
      'const s=require("net").connect({host:process.argv[1],port:6443,localAddress:process.argv[2]});s.on("error",e=>console.log(e.code)).on("data",()=>console.log("data"));s.write("x")';
    const [command = '', ...rest] = [...machine.pod, process.execPath, '-e', program, ADVERTISED, STRANGER];
    const { stdout } = await run(command, rest);
    assert.equal(stdout.trim(), 'ECONNRESET');
    assert.ok(watched.running);
  }),
);
