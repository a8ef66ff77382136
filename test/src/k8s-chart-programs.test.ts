import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { isthmusTenantsSync, PROGRAMS, parseFlags } from '@isthmus/flags';
import { VERSION } from '@isthmus/service';
import { stringify } from 'yaml';
import { Authority } from './harness/index.ts';
import {
  CHART,
  EXAMPLES,
  example,
  helm,
  leaves,
  NAMESPACES,
  readAsApiServer,
  render,
  renderFor,
  noHelm as skip,
  type Values,
} from './k8s/chart.ts';
import { type Manifest, root, type Workload, workloads } from './k8s/manifests.ts';

function find(programs: readonly Workload[], name: string): Workload {
  const found = programs.find((program) => program.name === name);
  assert.ok(found, `no deployment ${name}`);
  return found;
}

/** Flags as the kubelet and mounted secrets make them: with files in place of each that they name. */
async function withFiles(args: readonly string[], dir: string): Promise<string[]> {
  const authority = await Authority.create(dir, 'any');
  const { cert, key } = await authority.server();
  const files = { key: readFileSync(key), cert: readFileSync(cert), ca: readFileSync(authority.cert) };
  return args.map((arg) => {
    const filled = arg.replaceAll(/\$\((POD|NODE)_IP\)/g, '10.0.0.1').replaceAll(/\$\(\w+\)/g, 'name');
    const [, flag = '', path] = /^(--[^=]+)=(\/(?:etc|var)\/.*)$/.exec(filled) ?? [];
    if (path === undefined) return filled;
    const to = join(dir, path);
    mkdirSync(flag.endsWith('-dir') ? to : dirname(to), { recursive: true });
    if (!flag.endsWith('-dir'))
      writeFileSync(to, path.endsWith('.key') ? files.key : path.endsWith('/ca.crt') ? files.ca : files.cert);
    return `${flag}=${to}`;
  });
}

test('with every example, programs accept their flags, and their files lie in volumes', { skip }, async (context) => {
  const dir = mkdtempSync(join(tmpdir(), 'isthmus-chart-'));
  context.after(() => rmSync(dir, { recursive: true }));
  for (const file of EXAMPLES) {
    const { component } = example(file);
    for (const { name, container, pod, flags } of workloads(await render(example(file), NAMESPACES[component] ?? ''))) {
      const program = PROGRAMS.find((each) => each.name === container.command[0]);
      if (program) {
        const { values, warnings } = parseFlags(program.flags, await withFiles(container.args, dir), {});
        const said = [...warnings];
        program.check(values, (message) => void said.push(message));
        assert.deepEqual(said, [], `${file} ${name}`);
      }
      const mounts = container.volumeMounts;
      for (const [flag, value] of flags) {
        if (!value.startsWith('/')) continue;
        assert.ok(
          mounts.some(({ mountPath }) => value.startsWith(`${mountPath}/`) || value === mountPath),
          `${file} ${name}: --${flag}=${value} is in no volume`,
        );
      }
      const { initContainers: beside = [] } = pod;
      for (const { command, args } of beside) {
        assert.deepEqual([...command, ...args.slice(0, 2)].join(' '), isthmusTenantsSync.name);
        parseFlags(isthmusTenantsSync.flags, args.slice(2), {});
      }
      const mounted = new Set([...mounts, ...beside.flatMap((each) => each.volumeMounts)].map((mount) => mount.name));
      assert.deepEqual([...mounted].sort(), pod.volumes.map((volume) => volume.name).sort(), name);
    }
  }
});

test('a sync asks its member as an operator, and has what a ClusterProfile needs, in gateways and hubs', {
  skip,
}, async () => {
  const objects = await renderFor('plane', {
    operators: true,
    agentTokens: { enabled: false },
    tenants: {
      sync: { enabled: true, proxy: { url: 'https://gateways.example.com:8090', caSecret: 'gateway-callers-tls' } },
    },
  });
  for (const { name, pod } of workloads(objects).filter(
    ({ pod: { initContainers = [] } }) => initContainers.length > 0,
  )) {
    const [sync] = pod.initContainers ?? [];
    const flags = parseFlags(isthmusTenantsSync.flags, sync?.args.slice(2) ?? [], {});
    assert.deepEqual(flags.warnings, []);
    const { values } = flags;
    for (const flag of ['member-ca-cert', 'member-cert', 'member-key', 'proxy-ca-cert'] as const) {
      const mount = sync?.volumeMounts.find(({ mountPath }) => values[flag].startsWith(`${mountPath}/`));
      assert.equal(pod.volumes.filter((volume) => volume.name === mount?.name).length, 1, `${name} --${flag}`);
    }
  }
  const role = objects.find(({ kind, metadata }) => kind === 'ClusterRole' && metadata.name.endsWith('tenants-sync'));
  assert.match(JSON.stringify(role), /"secrets"\],"verbs":\["create"\]/);
});

test('a Service of a plane has a TLSRoute for the names that a Gateway passes on', { skip }, async () => {
  const tlsRoute = (name: string) => ({ parentRefs: [{ name: 'edge', sectionName: 'tls' }], hostnames: [name] });
  const objects = await renderFor('plane', {
    gateway: { service: { tlsRoute: tlsRoute('gateways.example.com') } },
    hub: { service: { tlsRoute: tlsRoute('hubs.example.com') } },
  });
  const routes = objects.filter(({ kind }) => kind === 'TLSRoute') as (Manifest & { readonly spec: object })[];
  assert.deepEqual(
    routes.map(({ metadata: { name }, spec }) => ({ name, ...spec })).sort((a, b) => (a.name < b.name ? -1 : 1)),
    [
      ['gateway', 'gateways.example.com', 8090],
      ['hub', 'hubs.example.com', 8091],
    ].map(([name, host, port]) => ({
      ...{ name, parentRefs: [{ name: 'edge', sectionName: 'tls' }], hostnames: [host] },
      rules: [{ backendRefs: [{ name, port }] }],
    })),
  );
});

test("a Redis of one's own is reached with TLS, a user and a Sentinel's password, and no other is installed", {
  skip,
}, async () => {
  const url = 'rediss+sentinel://s1,s2/primary';
  const objects = await renderFor('plane', {
    redis: {
      url,
      usernameKey: 'user',
      sentinelPasswordKey: 'word',
      tlsSecret: 'redis-tls',
      clientCertificate: true,
      ports: [6380],
    },
  });
  assert.ok(!objects.some(({ metadata }) => metadata.name === 'redis'), 'no Redis');
  for (const name of ['gateway', 'hub']) {
    const { flags, pod } = find(workloads(objects), name);
    const redis = [...flags].filter(([flag]) => flag.startsWith('redis-'));
    assert.deepEqual(Object.fromEntries(redis), {
      'redis-url': url,
      'redis-username-file': '/etc/isthmus/redis/user',
      'redis-password-file': '/etc/isthmus/redis/password',
      'redis-sentinel-password-file': '/etc/isthmus/redis/word',
      'redis-ca-cert': '/etc/isthmus/redis-tls/ca.crt',
      'redis-cert': '/etc/isthmus/redis-tls/tls.crt',
      'redis-key': '/etc/isthmus/redis-tls/tls.key',
    });
    const secrets = pod.volumes.flatMap(({ secret }) => (secret ? [secret.secretName] : []));
    assert.ok(secrets.includes('redis-auth') && secrets.includes('redis-tls'), name);
    const policy = objects.find(({ kind, metadata }) => kind === 'NetworkPolicy' && metadata.name === name) as Manifest;
    const rules = policy.spec.egress as { ports?: { port: number }[]; to?: unknown }[];
    assert.ok(
      rules.some(({ to, ports }) => !to && ports?.[0]?.port === 6380),
      `${name} may reach port 6380`,
    );
  }
});

test('without tokens, hubs ask agents for certificates, and agents show them', { skip }, async () => {
  const { flags, pod } = find(workloads(await renderFor('plane', { agentTokens: { enabled: false } })), 'hub');
  assert.equal(flags.get('cluster-ca-cert'), '/etc/isthmus/agents/ca.crt');
  assert.ok(!flags.has('kubeconfig') && !pod.volumes.some(({ name }) => name === 'kubeconfig'));
  const agent = find(workloads(await renderFor('agent', { agent: { certificateSecret: 'agent-tls' } })), 'agent');
  assert.equal(agent.flags.get('agent-cert'), '/etc/isthmus/certificate/tls.crt');
  assert.ok(!agent.flags.has('service-account-token-path'));
});

test('a server is ready without agents, which reach it through a Service of ready pods, and lets dials wait for them', {
  skip,
}, async () => {
  const { container, flags } = find(workloads(await renderFor('server', { drain: { delaySeconds: 20 } })), 'server');
  assert.equal(container.readinessProbe.httpGet?.path, '/readyz?exclude=sessions');
  assert.equal(flags.get('dial-park-timeout'), '30s');
  const hub = find(workloads(await renderFor('plane', { hub: { nodeSelector: { disk: 'ssd' } } })), 'hub');
  assert.equal(hub.container.readinessProbe.httpGet?.path, '/readyz');
  assert.deepEqual(hub.pod.nodeSelector, { 'kubernetes.io/os': 'linux', disk: 'ssd' });
});

interface Size {
  readonly replicas: number;
  readonly memory: readonly [string | undefined, string | undefined];
}

async function sizes(component: string, values: Values): Promise<Record<string, Size>> {
  const deployments = (await renderFor(component, values)).filter(({ kind }) => kind === 'Deployment');
  const sized = deployments.map(({ metadata, spec }) => {
    const { requests, limits } = spec.template.spec.containers[0].resources;
    return [metadata.name, { replicas: spec.replicas, memory: [requests.memory, limits.memory] }] as const;
  });
  return Object.fromEntries(sized);
}

// By the arithmetic of docs/TENANTS.md: 100,000 agents are 200,000 sessions, 6,000 a hub, 110 KiB each.
test('replicas and memory follow from clusters, agents and tunnels', { skip }, async () => {
  const large = await sizes('plane', { sizing: { clusters: 100, agents: 100_000, tunnels: 4000 } });
  assert.deepEqual(large, {
    gateway: { replicas: 5, memory: ['1077Mi', '2122Mi'] },
    hub: { replicas: 35, memory: ['720Mi', '915Mi'] },
    redis: { replicas: 1, memory: ['32Mi', '484Mi'] },
  });
  const { hub } = await sizes('plane', { hub: { replicas: 3, resources: { limits: { memory: '1Gi' } } } });
  assert.deepEqual(hub, { replicas: 3, memory: ['128Mi', '1Gi'] });
  assert.deepEqual(await sizes('agent', { sizing: { tunnels: 1200 } }), {
    agent: { replicas: 4, memory: ['128Mi', '506Mi'] },
  });
});

test('agents by the nodes of a cluster are as many as the page says', { skip }, async () => {
  const page = readFileSync(`${root}docs/KUBERNETES.md`, 'utf8');
  const [, said = ''] = /adds one agent: ([^.]*)\./.exec(page) ?? [];
  const rows = [...said.matchAll(/(\d+) for\s([\d,]+)/g)].map((row) =>
    row.slice(1).map((figure) => Number(figure.replaceAll(',', ''))),
  );
  assert.equal(rows.length, 3);
  for (const [agents, nodes] of rows)
    assert.equal((await sizes('agent', { sizing: { nodes } })).agent?.replicas, agents, `${nodes} nodes`);
});

test('what the page says of memory is what the chart counts, and both are what was measured', () => {
  const read = (path: string) => readFileSync(`${root}${path}`, 'utf8');
  const figures = (text: string, row: RegExp) => {
    const found = row.exec(text)?.slice(1).map(Number);
    assert.ok(found, `no line ${row}`);
    return found;
  };
  const counted = figures(
    read('k8s/chart/templates/_sizing.tpl'),
    /a session takes ([\d.]+) KiB at its hub and ([\d.]+) KiB at each gateway; a cluster ([\d.]+) KiB at each of both/,
  );
  const [session, atGateway, tenant] = counted;
  const kubernetes = read('docs/KUBERNETES.md');
  const said = [
    /^\| a session \| ([\d.]+) KiB at its hub, ([\d.]+) KiB at each gateway \|$/m,
    /^\| a tenant \| ([\d.]+) KiB at each hub and gateway \|$/m,
  ].flatMap((row) => figures(kubernetes, row));
  assert.deepEqual(said, [session, atGateway, tenant]);
  const page = read('docs/TENANTS.md');
  const sessions = figures(page, /^\| memory of one more session .* \| ([\d.]+) KiB, ([\d.]+) KiB \|$/m);
  const tenants = figures(page, /^\| memory of one more tenant .* \| ([\d.]+) KiB, ([\d.]+) KiB \|$/m);
  const measured = [...sessions, Math.max(...tenants)];
  for (const [at, count] of counted.entries())
    assert.ok(
      Math.abs(count - (measured[at] ?? 0)) <= 0.25 * count,
      `counted ${counted} KiB, measured ${measured} KiB`,
    );
});

/** What Kubernetes refuses to change in an object that exists, and what others find an object by. */
const IMMUTABLE: Readonly<Record<string, RegExp>> = {
  Deployment: /^spec\/(selector|template\/metadata\/labels)\//,
  Service: /^spec\/(clusterIP|selector|ports\/[^/]+\/port)/,
  ClusterRoleBinding: /^roleRef\//,
  PodDisruptionBudget: /^spec\/selector\//,
  ServiceAccount: /^$/,
  NetworkPolicy: /^spec\/podSelector/,
  ConfigMap: /^$/,
  HorizontalPodAutoscaler: /^spec\/scaleTargetRef/,
};

function immutable(objects: readonly Manifest[]): string[] {
  return objects.flatMap((object) => {
    const { kind, metadata } = object;
    const name = `${kind} ${metadata.namespace ?? ''} ${metadata.name}`;
    const fields = [...leaves(object)].filter(([path]) => IMMUTABLE[kind]?.test(path));
    return [name, ...fields.map(([path, value]) => `${name} ${path} ${value}`)];
  });
}

test('an upgrade changes nothing that cannot change, whatever values change with it', { skip }, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'isthmus-chart-'));
  try {
    const packed = await helm([
      'package',
      CHART,
      '--version',
      '9.9.9',
      '--app-version',
      '9.9.9',
      '--destination',
      directory,
    ]);
    assert.equal(packed.status, 0, packed.stderr);
    const next = `${directory}/isthmus-9.9.9.tgz`;
    const changed = {
      sizing: { clusters: 50, agents: 9000, tunnels: 9000 },
      image: { repository: 'registry.example.com/isthmus', digest: `sha256:${'0'.repeat(64)}` },
      drain: { delaySeconds: 30 },
      networkPolicies: { monitoringNamespace: 'elsewhere' },
    };
    for (const component of Object.keys(NAMESPACES)) {
      const [before, after] = [await renderFor(component), await renderFor(component, changed, next)];
      assert.deepEqual(immutable(after), immutable(before), component);
      assert.notDeepEqual(leaves(after), leaves(before), `${component}: values had no effect`);
      for (const { name, pod, container } of workloads(after)) {
        if (name !== 'redis') assert.match(container.image, /^registry\.example\.com\/isthmus@sha256:0+$/, name);
        if (name === 'hub') assert.equal(pod.terminationGracePeriodSeconds, 160);
      }
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

const AGENT_POD = {
  serviceAccountName: 'agent',
  containers: [{ name: 'proxy-agent', image: `isthmus:${VERSION}` }],
  volumes: [{ name: 'tmp', emptyDir: {} }],
};

test("only agents and kubelets get tokens of the agents' service account", { skip }, async () => {
  const policies = (await renderFor('agent', { admissionPolicy: { enabled: true } })).filter(
    ({ kind }) => kind === 'ValidatingAdmissionPolicy',
  );
  const ask = async (name: string, requests: readonly unknown[]) => {
    const policy = stringify(policies.find(({ metadata }) => metadata.name.endsWith(`.${name}.isthmus`)));
    return await readAsApiServer('admit', JSON.stringify({ policy, requests }));
  };
  const create = (spec: object) => ({ request: { operation: 'CREATE' }, object: { spec }, oldObject: null });
  const other = { ...AGENT_POD, containers: [{ name: 'x', image: 'isthmus-not:1' }] };
  const debug = { ...AGENT_POD, ephemeralContainers: [{ name: 'debug', image: 'busybox' }] };
  assert.deepEqual(
    await ask('pods', [
      create(AGENT_POD),
      create({ ...AGENT_POD, initContainers: [{ name: 'x', image: 'isthmus@sha256:1' }] }),
      create({ ...other, serviceAccountName: 'default' }),
      create(other),
      { ...create(debug), request: { operation: 'UPDATE' }, oldObject: { spec: AGENT_POD } },
      { ...create(other), request: { operation: 'UPDATE' }, oldObject: { spec: other } },
      create({ ...AGENT_POD, hostPID: true }),
      create({ ...AGENT_POD, volumes: [{ name: 'x', hostPath: { path: '/' } }] }),
    ]),
    [
      'admitted',
      'admitted',
      'not matched',
      'denied: pods with the service account agent run only the image isthmus',
      'denied: pods with the service account agent run only the image isthmus',
      'not matched',
      'denied: pods with the service account agent share no namespace with their node',
      'denied: pods with the service account agent mount no directory of their node',
    ],
  );
  const by = (groups: string[]) => ({
    request: { operation: 'CREATE', userInfo: { groups } },
    object: {},
    oldObject: null,
  });
  assert.deepEqual(await ask('tokens', [by(['system:nodes', 'system:authenticated']), by(['system:masters'])]), [
    'admitted',
    'denied: only kubelets request tokens of the service account agent',
  ]);
});
