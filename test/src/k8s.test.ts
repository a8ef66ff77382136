import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { isthmusHold, PROGRAMS, parseFlags } from '@isthmus/flags';
import { parse } from 'yaml';
import { objects } from './k8s/chart.ts';
import {
  type Container,
  composed,
  kustomize,
  type Manifest,
  portNumber,
  readManifest,
  root,
  selects,
  noKubectl as skip,
  staticPod,
  type Workload,
  workloads,
} from './k8s/manifests.ts';
import { deployed, deployment, NODE, ofKind, selected, server, socket } from './k8s/rendered.ts';

const NAMES = PROGRAMS.map(({ name }) => name);
/** Flags that say where a program listens. */
const LISTENS = ['server-port', 'agent-port', 'peer-port', 'health-port', 'health-server-port', 'admin-port'];

const overlay = skip ? [] : kustomize('k8s/overlays/control-plane-node');
const all = [...deployed, ...workloads(overlay), server, socket];
const ours = all.filter(({ container }) => NAMES.includes(container.command[0] ?? ''));

/** The static pod of a recipe's server. */
function recipe(path: string): Workload {
  return staticPod(readManifest(`k8s/recipes/${path}/konnectivity-server.yaml`));
}

function listening({ flags }: Workload): number[] {
  const ports = LISTENS.flatMap((name) => (flags.has(name) ? [Number(flags.get(name))] : []));
  return ports.filter((port) => port !== 0);
}

function seconds(duration: string | undefined): number {
  const match = /^(\d+)(s|m)$/.exec(duration ?? '');
  assert.ok(match, `a duration of seconds or minutes: ${duration}`);
  return Number(match[1]) * (match[2] === 'm' ? 60 : 1);
}

test('the base renders gateways, hubs, agents and Redis, and the overlay agents alone', { skip }, () => {
  assert.deepEqual(deployed.map(({ name }) => name).sort(), ['agent', 'gateway', 'hub', 'redis']);
  assert.deepEqual(
    workloads(overlay).map(({ name }) => name),
    ['agent'],
  );
});

test('plane and agents also render apart, for two clusters', { skip }, () => {
  const plane = workloads(kustomize('k8s/base/plane'));
  assert.deepEqual(plane.map(({ name }) => name).sort(), ['gateway', 'hub', 'redis']);
  const hub = plane.find(({ name }) => name === 'hub');
  assert.equal(hub?.flags.has('advertise-agent-address'), false, 'pods of the plane are out of reach from elsewhere');
  assert.deepEqual(
    workloads(kustomize('k8s/base/agent')).map(({ name }) => name),
    ['agent'],
  );
});

test('every container is confined and bounded', { skip }, () => {
  for (const { name, pod, container } of all) {
    assert.equal(pod.containers.length, 1, name);
    assert.equal(pod.securityContext.runAsNonRoot, true, name);
    assert.ok(Number(pod.securityContext.runAsUser) > 0, `${name}: a numeric user`);
    assert.deepEqual(pod.securityContext.seccompProfile, { type: 'RuntimeDefault' }, name);
    assert.deepEqual(
      container.securityContext,
      { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } },
      name,
    );
    assert.ok(container.resources.requests.cpu && container.resources.requests.memory, `${name}: requests`);
    assert.ok(container.resources.limits.memory, `${name}: a memory limit`);
    assert.match(container.image, /:\d[\w.-]*$/, `${name}: an image with a version`);
  }
});

test('no pod gets a token by default', { skip }, () => {
  for (const { name, pod } of deployed) assert.equal(pod.automountServiceAccountToken, false, name);
  for (const { metadata, ...account } of ofKind('ServiceAccount')) {
    assert.equal(
      (account as { automountServiceAccountToken?: boolean }).automountServiceAccountToken,
      false,
      metadata.name,
    );
  }
});

test('the agent shows a token for the audience that the hub asks for', { skip }, () => {
  const hub = deployment('hub');
  const agent = deployment('agent');
  const volume = agent.pod.volumes.find(({ name }) => name === 'token')?.projected as {
    sources: { serviceAccountToken: { audience: string; path: string } }[];
  };
  const token = volume.sources[0]?.serviceAccountToken;
  for (const verifier of [hub, server]) {
    assert.equal(token?.audience, verifier.flags.get('authentication-audience'));
    assert.equal(agent.namespace, verifier.flags.get('agent-namespace'));
    assert.equal(agent.pod.serviceAccountName, verifier.flags.get('agent-service-account'));
  }
  assert.ok(agent.flags.get('service-account-token-path')?.endsWith(`/${token?.path}`));
});

test('in one cluster the kubeconfig of the hub names files of the same volume', { skip }, () => {
  const hub = deployment('hub');
  const path = hub.flags.get('kubeconfig') as string;
  const directory = path.slice(0, path.lastIndexOf('/'));
  const { data } = ofKind('ConfigMap').find(({ metadata }) => metadata.name.startsWith('hub-kubeconfig-')) as Manifest;
  const { clusters, users } = parse(data?.config ?? '');
  const volume = hub.pod.volumes.find(({ name }) => name === 'kubeconfig')?.projected as {
    sources: { configMap?: { name: string; items?: { path: string }[] }; serviceAccountToken?: { path: string } }[];
  };
  const files = volume.sources.flatMap(({ configMap, serviceAccountToken }) => [
    ...(configMap?.items ?? []).map((item) => `${directory}/${item.path}`),
    ...(serviceAccountToken ? [`${directory}/${serviceAccountToken.path}`] : []),
  ]);
  assert.deepEqual([clusters[0].cluster['certificate-authority'], users[0].user.tokenFile], files);
});

test('every program accepts its flags without a warning', { skip }, () => {
  for (const { name, container } of ours) {
    const program = PROGRAMS.find((each) => each.name === container.command[0]) as (typeof PROGRAMS)[number];
    const args = container.args.map((arg) => arg.replace('$(PROXY_SERVER_PORT)', '8091'));
    assert.deepEqual(parseFlags(program.flags, args, {}).warnings, [], name);
  }
  assert.deepEqual([...new Set(ours.map(({ container }) => container.command[0]))].sort(), [...NAMES].sort());
});

test('every file that a flag names lies in a volume, and every volume is used', { skip }, () => {
  for (const { name, pod, container, flags } of all) {
    const mounts = container.volumeMounts;
    for (const [flag, value] of flags) {
      if (!value.startsWith('/')) continue;
      const mounted = mounts.some(({ mountPath }) => value === mountPath || value.startsWith(`${mountPath}/`));
      assert.ok(mounted, `${name}: --${flag}=${value} is in no volume`);
    }
    assert.deepEqual(mounts.map((mount) => mount.name).sort(), pod.volumes.map((volume) => volume.name).sort(), name);
  }
});

test('a static pod mounts directories, because a file that is mounted stays the old one when it is renewed by a rename', () => {
  for (const { pod, name } of [server, recipe('kubeadm-ha/node')]) {
    const mounted = pod.volumes.flatMap(({ hostPath }) =>
      hostPath ? [`${name} ${hostPath.path} ${hostPath.type}`] : [],
    );
    assert.deepEqual(
      mounted.filter((each) => !each.endsWith(' Directory')),
      [],
    );
    assert.equal(mounted.length, 2);
  }
});

test("what holds the API server's socket is what its egress configuration names, and passes on to where each server listens", () => {
  assert.deepEqual(socket.container.command, isthmusHold.name.split(' '));
  assert.deepEqual(parseFlags(isthmusHold.flags, [...socket.container.args], {}).warnings, []);
  const { egressSelections } = readManifest(`${NODE}/egress-selector-configuration.yaml`);
  assert.equal(socket.flags.get('uds-name'), egressSelections[0].connection.transport.uds.udsName);
  const { httpGet } = socket.container.livenessProbe;
  assert.deepEqual(httpGet, { path: '/healthz', port: 'health' });
  // The kubelet starts the next one only once it has ended.
  const { values } = parseFlags(isthmusHold.flags, [...socket.container.args], {});
  const graceMs = values['graceful-shutdown-timeout'];
  assert.deepEqual([graceMs, socket.pod.terminationGracePeriodSeconds], [60_000, 70]);
  for (const pod of [server, ...['node', 'plane'].map((path) => recipe(`kubeadm-ha/${path}`))]) {
    assert.equal(pod.flags.get('uds-name'), socket.flags.get('gateways'), pod.name);
    const directory = (each: Workload) => each.pod.volumes.find(({ name }) => name === 'socket');
    assert.deepEqual(directory(pod), directory(socket));
  }
});

test('every required secret and config map is in k8s/README.md', { skip }, () => {
  const readme = readFileSync(`${root}k8s/README.md`, 'utf8');
  const made = new Set(ofKind('ConfigMap').map(({ metadata }) => metadata.name));
  for (const { pod } of [...workloads(kustomize('k8s/base/plane')), ...deployed]) {
    for (const { secret, configMap } of pod.volumes) {
      const name = secret?.secretName ?? configMap?.name;
      if (name && !made.has(name)) assert.ok(readme.includes(`\`${name}\``), name);
    }
  }
});

test('a container declares exactly the ports that its flags open', { skip }, () => {
  for (const workload of ours.filter(({ pod }) => !('hostNetwork' in pod))) {
    const named = workload.container.ports.map(({ containerPort }) => containerPort).sort();
    assert.deepEqual(named, listening(workload).sort(), workload.name);
  }
});

test('probes ask the health port', { skip }, () => {
  for (const { name, container, flags } of ours) {
    const health = Number(flags.get('health-port') ?? flags.get('health-server-port'));
    const paths = [container.startupProbe, container.livenessProbe, container.readinessProbe].map((probe) => {
      assert.equal(portNumber(container, probe?.httpGet?.port ?? ''), health, name);
      return probe?.httpGet?.path;
    });
    assert.deepEqual(paths, ['/healthz', '/healthz', '/readyz'], name);
  }
});

test('operators find gateways and hubs by the names of their pods', { skip }, () => {
  for (const name of ['gateway', 'hub']) {
    const { flags, container } = deployment(name);
    assert.equal(flags.get('server-id'), '$(POD_NAME)');
    const field = container.env?.find((each) => each.name === 'POD_NAME')?.valueFrom?.fieldRef?.fieldPath;
    assert.equal(field, 'metadata.name');
  }
});

test('the grace period of a pod is a little longer than its drain', { skip }, () => {
  for (const { name, pod, flags } of ours.filter(({ flags }) => flags.has('graceful-shutdown-timeout'))) {
    const delay = flags.has('shutdown-delay-duration') ? seconds(flags.get('shutdown-delay-duration')) : 0;
    const spare = pod.terminationGracePeriodSeconds - delay - seconds(flags.get('graceful-shutdown-timeout'));
    assert.ok(spare > 0 && spare <= 30, `${name}: ${spare} s beside the drain`);
  }
});

test('hubs advertise the ports on which they listen', { skip }, () => {
  const hub = deployment('hub');
  assert.equal(hub.flags.get('advertise-address'), `$(POD_IP):${hub.flags.get('peer-port')}`);
  assert.equal(hub.flags.get('advertise-agent-address'), `$(POD_IP):${hub.flags.get('agent-port')}`);
});

test('deployments, budgets and spreads select their own pods', { skip }, () => {
  for (const { metadata, spec } of ofKind('Deployment')) {
    assert.deepEqual(
      selected(spec.selector, metadata.namespace).map(({ name }) => name),
      [metadata.name],
    );
  }
  for (const { metadata, spec } of ofKind('PodDisruptionBudget')) {
    assert.deepEqual(
      selected(spec.selector, metadata.namespace).map(({ name }) => name),
      [metadata.name],
    );
  }
  for (const { name, pod, labels } of deployed) {
    for (const { labelSelector } of pod.topologySpreadConstraints ?? [])
      assert.ok(selects(labelSelector, labels), name);
  }
});

test('with the component for tenants, gateways and hubs read one directory of files and credentials', { skip }, () => {
  const readers = workloads(composed('base/plane', 'components/tenants')).filter(({ flags }) =>
    flags.has('tenants-dir'),
  );
  assert.deepEqual(readers.map(({ name }) => name).sort(), ['gateway', 'hub']);
  for (const { container, pod, flags, name } of readers) {
    const mount = container.volumeMounts.find(({ mountPath }) => mountPath === flags.get('tenants-dir'));
    assert.ok(
      pod.volumes.some((volume) => volume.name === mount?.name && volume.projected),
      name,
    );
    // The files say who reviews tokens. A pod waits for ever for a secret that nobody makes.
    for (const flag of ['agent-namespace', 'agent-service-account', 'authentication-audience', 'kubeconfig'])
      assert.ok(!flags.has(flag), `${name}: --${flag}`);
    assert.deepEqual(
      [...container.volumeMounts, ...pod.volumes].filter((each) => each.name === 'kubeconfig'),
      [],
      name,
    );
  }
});

const DAY_SECONDS = 86_400;

/** Where the manifests run agents: what is rendered, and recipes' own DaemonSets. */
const agents: readonly Manifest[] = skip
  ? []
  : [
      ...composed('base/agent'),
      ...composed('base/agent', 'components/node-local'),
      ...composed('recipes/kubeadm-ha', 'components/node-local'),
      ...['kubernetes-io', 'k0s'].flatMap((recipe) =>
        objects(readFileSync(`${root}k8s/recipes/${recipe}/konnectivity-agent.yaml`, 'utf8')),
      ),
    ].filter(({ kind }) => kind === 'Deployment' || kind === 'DaemonSet');

test('agents have a day to become empty, and new ones come before old ones leave', { skip }, () => {
  assert.deepEqual(
    agents.map(({ kind }) => kind),
    ['Deployment', 'DaemonSet', 'DaemonSet', 'DaemonSet', 'DaemonSet'],
  );
  for (const { kind, spec } of agents) {
    assert.equal(spec.template.spec.terminationGracePeriodSeconds, DAY_SECONDS);
    const { strategy, updateStrategy } = spec;
    const change = kind === 'Deployment' ? strategy : updateStrategy;
    assert.deepEqual(change.rollingUpdate, { maxSurge: 1, maxUnavailable: 0 });
    // The old and the new one run side by side for a day: neither has a port of the node, nor the other's id.
    assert.ok(!spec.template.spec.hostNetwork);
    assert.ok(!JSON.stringify(spec).includes('hostPort'));
    const id = spec.template.spec.containers[0].args.find((arg: string) => arg.startsWith('--agent-id='));
    assert.ok(id === undefined || id === '--agent-id=$(POD_NAME)', id);
  }
  const unit = readFileSync(`${root}systemd/isthmus-agent.service`, 'utf8');
  assert.match(unit, /^TimeoutStopSec=1d$/m);
});

test("an agent on each node says that it serves its node, and callers' servers ask it first", { skip }, () => {
  for (const { spec } of agents.filter(({ kind }) => kind === 'DaemonSet')) {
    const { args, env } = spec.template.spec.containers[0] as Container;
    const [, identifiers = ''] = args.join('\n').match(/^--agent-identifiers=(.*)$/m) ?? [];
    const fields = new Map(env?.map(({ name, valueFrom }) => [`$(${name})`, valueFrom?.fieldRef?.fieldPath]));
    const said = [...new URLSearchParams(identifiers).values()].map((value) => fields.get(value));
    assert.ok(said.includes('status.hostIP'), identifiers);
    assert.deepEqual(
      said.filter((path) => path !== 'status.hostIP' && path !== 'spec.nodeName'),
      [],
    );
    assert.equal(spec.replicas, undefined);
    assert.deepEqual(spec.template.spec.tolerations.length, 1);
  }
  const budgets = composed('base/agent', 'components/node-local').filter(({ kind }) => kind === 'PodDisruptionBudget');
  assert.deepEqual(budgets, []);
  const pods = ['kubeadm-ha/node', 'kubeadm-ha/plane', 'kubernetes-io/node'].map(recipe);
  for (const { name, flags } of [deployment('gateway'), server, ...pods])
    assert.equal(flags.get('proxy-strategies'), 'destHost,default', name);
});

test('with the component for it, agents may say what their end would cost and what it cut, and nothing else', {
  skip,
}, () => {
  const applied = composed('base/agent', 'components/deletion-cost');
  assert.equal(workloads(applied)[0]?.pod.automountServiceAccountToken, true);
  const roles = applied.filter(({ kind }) => kind === 'Role') as unknown as readonly { readonly rules: unknown }[];
  assert.deepEqual(
    roles.map(({ rules }) => rules),
    [
      [
        { apiGroups: [''], resources: ['pods/status'], verbs: ['patch'] },
        { apiGroups: [''], resources: ['events'], verbs: ['create'] },
      ],
    ],
  );
  const binding = applied.find(({ kind }) => kind === 'RoleBinding') as unknown as { readonly subjects: unknown };
  assert.deepEqual(binding.subjects, [{ kind: 'ServiceAccount', name: 'agent', namespace: 'isthmus-agent' }]);
});

test('no manifest sends a pod to a Windows node, for which there is no image', { skip }, () => {
  for (const { kind, metadata, spec } of [...ofKind('Deployment'), ...agents])
    assert.deepEqual(spec.template.spec.nodeSelector, { 'kubernetes.io/os': 'linux' }, `${kind} ${metadata.name}`);
});
