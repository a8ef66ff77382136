import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { parseFlags, proxyAgent } from '@isthmus/flags';
import { parseDestination } from '@isthmus/tunnel';
import { parse, stringify } from 'yaml';
import { scoped } from '../harness/index.ts';
import { objects } from '../k8s/chart.ts';
import { kustomize, type Manifest, noKubectl, root } from '../k8s/manifests.ts';
import { KubernetesApi, noApiServer } from '../sync/kubernetes-api.ts';
import { argsOf, podsOf } from './objects.ts';

const RECIPE = join(root, 'k8s/recipes/one-address');
const read = (path: string) => readFileSync(join(RECIPE, path), 'utf8');

/** The README's YAML: of the tenant's file, of kubeadm, and of Kamaji. */
const [tenant, kubeadm, kamaji] = [...read('README.md').matchAll(/^ *```yaml\n(.*?)^ *```$/gms)].map(([, text = '']) =>
  parse(text),
);

const ACME = parse(readFileSync(join(root, 'k8s/recipes/shared-plane/tenants/acme.yaml'), 'utf8'));

/** What is applied to the management cluster: the shared plane with step 1, and Kamaji's object. */
function management(): Manifest[] {
  const plane = kustomize('k8s/recipes/shared-plane').map((object) => {
    if (object.kind !== 'Service' || object.metadata.name !== 'hub-agents') return object;
    const ports = object.spec.ports.map((port: { name: string }) =>
      port.name === 'agents' ? { ...port, port: 443 } : port,
    );
    return { ...object, spec: { ...object.spec, ports } };
  });
  const [config, control] = objects(readFileSync(join(root, 'k8s/recipes/kamaji/shared-plane.yaml'), 'utf8')) as [
    Manifest,
    Manifest,
  ];
  const { controlPlane, networkProfile } = control.spec;
  const spec = {
    ...control.spec,
    controlPlane: { ...controlPlane, ...kamaji.spec.controlPlane },
    networkProfile: { ...networkProfile, ...kamaji.spec.networkProfile },
  };
  return [...plane, config, { ...control, spec }];
}

test('one-address: all files name the same names, addresses and ports', { skip: noKubectl }, () => {
  const [agent] = podsOf('one-address');
  assert.ok(agent?.containers?.[0]);
  const { flags } = proxyAgent;
  const { values } = parseFlags(flags, argsOf(agent.containers[0]), {});
  const [listens = { host: '', port: 0 }] = values['api-server-listen'].map(parseDestination);
  const [host, port] = [values['proxy-server-host'].join(), values['proxy-server-port']];

  const file = readTenantFile(stringify({ ...ACME, ...tenant }));
  assert.ok('file' in file, JSON.stringify(file));
  const { server, apiServer } = file.file;
  const [name = ''] = apiServer?.names ?? [];
  assert.deepEqual(server?.serverNames, [host]);
  assert.ok(!server?.serverNames.includes(name), 'a name leads to hubs or to the API server');
  assert.ok(apiServer?.addresses.every((each) => parseDestination(each).port === listens.port));

  for (const [kind] of new URLSearchParams(values['agent-identifiers']))
    assert.ok(kind in (file.file.claims ?? {}), `hubs refuse agents with ${kind}= that claims.${kind} does not cover`);

  const { certSANs, extraArgs } = kubeadm.apiServer;
  const endpoint = `${name}:${port}`;
  assert.equal(kubeadm.controlPlaneEndpoint, endpoint);
  assert.deepEqual(certSANs, [name, listens.host]);
  assert.deepEqual(extraArgs, [{ name: 'advertise-address', value: listens.host }]);
  assert.ok(read('README.md').includes(`kubeadm join ${endpoint} `));
  assert.match(read('agents.yaml'), new RegExp(`name: API_SERVER_ADDRESS\\n +value: ${listens.host}\n`));
  assert.match(read('node/api0.network'), new RegExp(`^Address=${listens.host}/32$`, 'm'));
  const [, line = ''] = /^ExecStart=\S+ (.+)$/m.exec(read('node/isthmus-agent.conf').replaceAll(/\\\n\s*/g, '')) ?? [];
  const unit = parseFlags(
    flags,
    line
      .replace(/\$\{SERVERS\}/, 'acme.plane.example')
      .replace('$FLAGS', '')
      .trim()
      .split(/\s+/),
    {},
  );
  assert.deepEqual(unit.warnings, []);
  for (const same of ['proxy-server-host', 'proxy-server-port', 'api-server-listen', 'api-server-allow'] as const)
    assert.deepEqual(unit.values[same], values[same], same);

  const [service, control] = ['hub-agents', 'acme'].map((each) =>
    management().find(({ kind, metadata }) => metadata.name === each && /^(Service|TenantControlPlane)$/.test(kind)),
  );
  const opened = service?.spec.ports.find((port: { name: string }) => port.name === 'agents');
  assert.equal(opened.port, port);
  const { controlPlane, networkProfile } = control?.spec ?? {};
  assert.equal(controlPlane.ingress.hostname, endpoint);
  assert.deepEqual(networkProfile, { port: listens.port, advertiseAddress: listens.host, certSANs });
  const { name: plane, namespace } = control?.metadata ?? {};
  assert.ok(read('README.md').includes(`[${plane}.${namespace}.svc:${networkProfile.port}]`));
});

/** Kamaji's definition, as far as an API server needs one to take its objects. */
const TENANT_CONTROL_PLANES = {
  apiVersion: 'apiextensions.k8s.io/v1',
  kind: 'CustomResourceDefinition',
  metadata: { name: 'tenantcontrolplanes.kamaji.clastix.io' },
  spec: {
    group: 'kamaji.clastix.io',
    scope: 'Namespaced',
    names: { kind: 'TenantControlPlane', plural: 'tenantcontrolplanes' },
    versions: [
      {
        ...{ name: 'v1alpha1', served: true, storage: true },
        schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
      },
    ],
  },
};

test(
  'one-address: API servers take every object, of the management cluster and of the cluster',
  { skip: noApiServer || noKubectl, timeout: 300_000 },
  scoped(async (scope) => {
    const api = await KubernetesApi.start(scope);
    const namespaces = ['isthmus-plane', 'isthmus-agent', 'tenants'];
    const made = namespaces.map((name) => ({ apiVersion: 'v1', kind: 'Namespace', metadata: { name } }));
    await api.apply(...made, TENANT_CONTROL_PLANES);
    await api.established();
    const dryRun = (text: string) => api.kubectl(['apply', '--dry-run=server', '--validate=strict', '-f', '-'], text);
    const own = await dryRun(read('agents.yaml'));
    assert.match(own, /^daemonset.apps\/konnectivity-agent created \(server dry run\)$/m);
    const all = management();
    const applied = await dryRun(all.map((object) => stringify(object)).join('---\n'));
    assert.equal(applied.trim().split('\n').length, all.length, applied);
    assert.match(applied, /^tenantcontrolplane.kamaji.clastix.io\/acme created \(server dry run\)$/m);
    assert.match(applied, /^service\/hub-agents created \(server dry run\)$/m);
  }),
);
