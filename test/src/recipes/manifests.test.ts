import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { isthmusHold, PROGRAMS, parseFlags } from '@isthmus/flags';
import { parse } from 'yaml';
import { noApiServer, objects, readAsApiServer } from '../k8s/chart.ts';
import { composed, kustomize, type Manifest, noKubectl, readManifest, root, workloads } from '../k8s/manifests.ts';
import { COMMAND_LINES } from './command-lines.ts';
import {
  argsOf,
  commandLinesOf,
  filesOf,
  podsOf,
  programOf,
  RECIPES,
  type RecipeContainer,
  unitsOf,
} from './objects.ts';

/** What these files are for is not among the kinds that an API server has by itself. */
const NOT_KUBERNETES =
  /^(EgressSelectorConfiguration|Kustomization|Component|Config|ClusterConfig|TenantControlPlane|HostedCluster|KubeadmControlPlane|Tenant)\./;

/** Flags of upstream that have no effect here. Any other warning would mean that an argument is not understood. */
const INERT = /^these flags have no effect here: /;

for (const recipe of RECIPES) {
  test(`${recipe}: an API server reads every object as it is meant`, { skip: noApiServer }, async () => {
    for (const file of filesOf(recipe, '.yaml')) {
      const text = readFileSync(join(root, file), 'utf8');
      // A list is a patch.
      if (objects(text).some((object) => Array.isArray(object))) continue;
      const found = await readAsApiServer('decode', text);
      const wrong = found.filter((line) => !(line.endsWith(' not registered') && NOT_KUBERNETES.test(line)));
      assert.deepEqual(wrong, [], file);
    }
  });

  test(`${recipe}: kubectl renders what is to be applied`, { skip: noKubectl }, () => {
    for (const file of filesOf(recipe, 'kustomization.yaml')) {
      if (readManifest(file).kind === 'Kustomization') assert.ok(kustomize(dirname(file)).length > 0, file);
    }
  });

  test(`${recipe}: programs accept their arguments, and find every file in a volume`, () => {
    for (const { file, containers = [], volumes = [] } of podsOf(recipe)) {
      for (const container of containers) {
        const program = programOf(container);
        if (!program) continue;
        const { values } = parseFlags(program.flags, argsOf(container), {});
        const mounts = container.volumeMounts ?? [];
        for (const { name } of mounts)
          assert.ok(
            volumes.some((volume) => volume.name === name),
            `${file}: volume ${name}`,
          );
        for (const [flag, value] of Object.entries(values)) {
          if (typeof value !== 'string' || !value.startsWith('/')) continue;
          // What every pod has, unless it says that it does not want it.
          const places = [...mounts.map(({ mountPath }) => mountPath), '/var/run/secrets/kubernetes.io/serviceaccount'];
          const found = places.some((place) => value === place || value.startsWith(`${place}/`));
          assert.ok(found, `${file}: --${flag}=${value} is in no volume`);
        }
      }
    }
  });
}

for (const { recipe, program, args } of [
  ...COMMAND_LINES,
  ...RECIPES.flatMap((recipe) => [...commandLinesOf(recipe), ...unitsOf(recipe)]),
]) {
  test(`${recipe}: ${program} knows every argument`, () => {
    const { flags } = PROGRAMS.find(({ name }) => name === program) as (typeof PROGRAMS)[number];
    const { warnings } = parseFlags(flags, args, {});
    assert.deepEqual(
      warnings.filter((warning) => !INERT.test(warning)),
      [],
    );
  });
}

test("shared-plane: a tenant's file can be used, its credentials are those that isthmus certs and the README name, and its port is open", {
  skip: noKubectl,
}, () => {
  const read = readTenantFile(readFileSync(join(root, 'k8s/recipes/shared-plane/tenants/acme.yaml'), 'utf8'));
  assert.ok('file' in read, JSON.stringify(read));
  const readme = readFileSync(join(root, 'k8s/recipes/shared-plane/README.md'), 'utf8');
  for (const [name] of JSON.stringify(read.file).matchAll(/acme[\w-]*\.(crt|key|pub)/g))
    assert.ok(readme.includes(`\`${name}\``), name);
  const port = read.file.agents?.[0]?.port;
  const applied = kustomize('k8s/recipes/shared-plane');
  const opened = applied.flatMap(({ kind, metadata, spec }) => {
    if (metadata.name === 'hub-agents' && kind === 'Service') return spec.ports;
    return metadata.name === 'hub-tenants' && kind === 'NetworkPolicy' ? spec.ingress[0].ports : [];
  });
  assert.equal(opened.filter((each: { readonly port: number }) => each.port === port).length, 2, String(port));
  const hub = workloads(applied).find(({ name }) => name === 'hub');
  assert.equal(hub?.flags.get('tenants-dir'), '/etc/isthmus/tenants');
});

test("kamaji: on a shared plane, isthmus hold listens where the API server dials, and shows its certificate to the tenant's gateways", () => {
  const file = 'k8s/recipes/kamaji/shared-plane.yaml';
  const [config, plane] = objects(readFileSync(join(root, file), 'utf8')) as [Manifest, Manifest];
  const { egressSelections } = parse(config.data?.['egress-selector-configuration.yaml'] ?? '') as Manifest;
  const socket: string = egressSelections[0].connection.transport.uds.udsName;
  const hold = podsOf('kamaji').flatMap(({ containers = [] }) => containers)[0];
  const { values, warnings } = parseFlags(isthmusHold.flags, hold?.args ?? [], {});
  assert.deepEqual(warnings, []);
  assert.deepEqual([values['uds-name'], values.gateways], [socket, ['acme.plane.example:8090']]);
  const { livenessProbe, ports } = hold as RecipeContainer;
  assert.deepEqual(livenessProbe?.httpGet, { path: '/healthz', port: 'health' });
  assert.deepEqual(ports, [{ name: 'health', containerPort: values['health-port'] }]);
  assert.equal(values['health-bind-address'], '', 'the kubelet and Prometheus ask from elsewhere');
  const { additionalVolumeMounts, additionalVolumes } = plane.spec.controlPlane.deployment;
  const shared = additionalVolumeMounts.apiServer.find(
    ({ mountPath }: { mountPath: string }) => dirname(socket) === mountPath,
  );
  assert.deepEqual(
    hold?.volumeMounts?.find(({ name }) => name === shared.name),
    shared,
  );
  const secret = additionalVolumes.find(({ name }: { name: string }) => name === 'isthmus').secret.secretName;
  assert.equal(secret, 'acme-callers');
});

test('kubeadm-ha: with leases, the rights are where servers keep them, and agents get a token to list them', {
  skip: noKubectl,
}, () => {
  const applied = composed('recipes/kubeadm-ha', 'recipes/kubeadm-ha/leases');
  const rights = applied.filter(({ kind }) => /^Role(Binding)?$/.test(kind));
  assert.deepEqual(
    rights.map(({ metadata }) => `${metadata.namespace} ${metadata.name}`).sort(),
    ['count-servers', 'count-servers', 'server-leases', 'server-leases'].map((name) => `kube-system isthmus:${name}`),
  );
  const [agent] = workloads(applied);
  assert.deepEqual(
    [agent?.namespace, agent?.pod.automountServiceAccountToken, agent?.flags.get('count-server-leases')],
    ['isthmus-agent', true, 'true'],
  );
});
