import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  type Manifest,
  type Peer,
  portNumber,
  type Rule,
  readManifest,
  type Selector,
  selects,
  noKubectl as skip,
  type Workload,
} from './k8s/manifests.ts';
import { deployed, NODE, ofKind, selected, server } from './k8s/rendered.ts';

test('services forward to ports of the pods that they select', { skip }, () => {
  for (const { metadata, spec } of ofKind('Service')) {
    const [workload, ...others] = selected({ matchLabels: spec.selector }, metadata.namespace);
    assert.ok(workload && others.length === 0, `${metadata.name} selects one deployment`);
    for (const { port, targetPort } of spec.ports) {
      assert.equal(portNumber(workload.container, targetPort), port, metadata.name);
    }
  }
});

test('agents dial a service of the hubs', { skip }, () => {
  const { data } = ofKind('ConfigMap').find(({ metadata }) => metadata.name.startsWith('agent-')) as Manifest;
  const [name, namespace] = data?.['proxy-server-host']?.split('.') ?? [];
  const service = ofKind('Service').find(({ metadata }) => metadata.name === name && metadata.namespace === namespace);
  assert.equal(String(service?.spec.ports[0].port), data?.['proxy-server-port']);
});

test('policies allow only the ports that pods open', { skip }, () => {
  const policies = ofKind('NetworkPolicy');
  for (const { namespace } of deployed) {
    const denied = policies.find(
      ({ metadata }) => metadata.namespace === namespace && metadata.name === 'default-deny',
    );
    assert.deepEqual(denied?.spec, { podSelector: {}, policyTypes: ['Ingress', 'Egress'] }, namespace);
  }
  for (const workload of deployed) {
    const own = policies.filter(
      ({ metadata, spec }) => metadata.namespace === workload.namespace && selects(spec.podSelector, workload.labels),
    );
    const allowed = own.flatMap(({ spec }) => (spec.ingress ?? []) as Rule[]).flatMap((rule) => ports(rule));
    const open = workload.container.ports.map(({ containerPort }) => containerPort);
    assert.deepEqual(allowed.sort(), open.sort(), `${workload.name}: ports let in and ports open`);
    for (const rule of own.flatMap(({ spec }) => (spec.egress ?? []) as Rule[])) reaches(workload, rule);
  }
});

function ports(rule: Rule): number[] {
  return (rule.ports ?? []).map(({ port }) => port);
}

/** Fails unless a rule for pods of the same namespace leads to ports on which they listen. */
function reaches(from: Workload, rule: Rule): void {
  const inside = (rule.to ?? []).filter((peer: Peer) => peer.podSelector && !peer.namespaceSelector);
  for (const { podSelector } of inside) {
    const [to] = selected(podSelector as Selector, from.namespace);
    const open = to?.container.ports.map(({ containerPort }) => containerPort) ?? [];
    for (const port of ports(rule)) assert.ok(open.includes(port), `${from.name} to port ${port} of ${to?.name}`);
  }
}

/** What a plane's pods may reach outside of their namespace: `UDP 53 to PEERS`, or `TCP 443` where anything may be the peer. */
function outward(name: string): string[] {
  const policy = ofKind('NetworkPolicy').find(
    ({ metadata }) => metadata.name === name && metadata.namespace === 'isthmus-plane',
  ) as Manifest;
  return ((policy.spec.egress ?? []) as Rule[]).flatMap(({ to, ports: open = [] }) =>
    open.map(({ protocol, port, endPort }) => {
      const range = endPort === undefined ? port : `${port}-${endPort}`;
      return `${protocol} ${range}${to ? ` to ${to.map(({ ipBlock, podSelector }) => peer(ipBlock, podSelector)).join(' or ')}` : ''}`;
    }),
  );
}

function peer(block: unknown, pods: Selector | undefined): string {
  if (block) return (block as { cidr: string }).cidr;
  const [expression] = pods?.matchExpressions ?? [];
  return expression?.values.join(' or ') ?? Object.values(pods?.matchLabels ?? {}).join(' or ');
}

test('gateways and hubs may ask DNS on their own node, and hubs an API server behind a NodePort', { skip }, () => {
  const servers = 'kube-dns or node-local-dns or 169.254.20.10/32';
  assert.deepEqual(outward('dns'), [`UDP 53 to ${servers}`, `TCP 53 to ${servers}`]);
  assert.deepEqual(
    outward('hub').filter((rule) => !rule.includes(' to ')),
    ['TCP 443', 'TCP 6443', 'TCP 30000-32767'],
  );
});

test('the API server dials the socket of isthmus hold, which passes on to the one that proxy-server creates', () => {
  const hold = readManifest(`${NODE}/proxy-socket.yaml`).spec.containers[0] as { readonly args: readonly string[] };
  const flag = (name: string) => hold.args.find((arg) => arg.startsWith(`--${name}=`))?.split('=')[1] ?? '';
  const socket = flag('uds-name');
  assert.equal(flag('gateways'), server.flags.get('uds-name'));
  const config = readManifest(`${NODE}/egress-selector-configuration.yaml`);
  assert.equal(config.apiVersion, 'apiserver.k8s.io/v1beta1');
  assert.equal(config.kind, 'EgressSelectorConfiguration');
  assert.deepEqual(config.egressSelections, [
    { name: 'cluster', connection: { proxyProtocol: 'GRPC', transport: { uds: { udsName: socket } } } },
  ]);
  const directory = socket.slice(0, socket.lastIndexOf('/'));
  const volume = server.pod.volumes.find(({ hostPath }) => hostPath?.path === directory);
  const mount = server.container.volumeMounts.find(({ name }) => name === volume?.name);
  assert.equal(mount?.mountPath, directory, 'the same path inside and outside');
  assert.notEqual(mount?.readOnly, true);
  const patch = JSON.stringify(readManifest(`${NODE}/kube-apiserver0+json.yaml`));
  assert.ok(patch.includes(`"mountPath":"${directory}"`) && patch.includes(`"path":"${directory}"`));
});

test('over TCP the API server dials the gateways with HTTP CONNECT and a certificate', { skip }, () => {
  const config = readManifest(`${NODE}/egress-selector-configuration-http-connect.yaml`);
  const { proxyProtocol, transport } = config.egressSelections[0].connection;
  assert.equal(proxyProtocol, 'HTTPConnect');
  const gateway = ofKind('Service').find(({ metadata }) => metadata.name === 'gateway') as Manifest;
  assert.equal(transport.tcp.url, `https://gateway.${gateway.metadata.namespace}.svc:${gateway.spec.ports[0].port}`);
  assert.deepEqual(Object.keys(transport.tcp.tlsConfig).sort(), ['caBundle', 'clientCert', 'clientKey']);
});
