import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { stringify } from 'yaml';
import { scoped, tempDir } from '../harness/index.ts';
import { CHART, helm, noHelm, type Values } from '../k8s/chart.ts';
import { readManifest } from '../k8s/manifests.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { tenantWithCa } from './objects.ts';

const NAMESPACE = 'isthmus-plane';
const KINDS = [
  'deployments,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets',
  'clusterroles,clusterrolebindings',
];

/** Another chart that has this one as a dependency twice, with what its own `helm dependency build` has packed. */
async function umbrella(directory: string): Promise<void> {
  const { version } = readManifest<{ version: string }>('k8s/chart/Chart.yaml');
  const dependencies = ['plane', 'agent'].map((alias) => {
    const condition = `${alias}.enabled`;
    return { name: 'isthmus', version, repository: `file://${CHART}`, alias, condition, tags: ['network'] };
  });
  const chart = { apiVersion: 'v2', name: 'umbrella', version: '1.0.0', dependencies };
  await writeFile(join(directory, 'Chart.yaml'), stringify(chart));
  const { status, stderr } = await helm(['dependency', 'update', directory]);
  assert.equal(status, 0, stderr);
}

const SYNC = { agentTokens: { enabled: false }, tenants: { sync: { enabled: true } } };
const AGENT = { component: 'agent', agent: { tokenReviewer: '' } };

describe('The chart as a dependency of another, in an API server', { skip: noHelm || noApiServer }, () => {
  test(
    'is installed, changed and taken out again; tenants and their definition stay',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      // The chart brings it.
      await kube.kubectl(['delete', 'crd', 'tenants.isthmus.dev']);
      const chart = await tempDir(scope);
      await umbrella(chart);
      const run = async (args: readonly string[], values: Values = {}) => {
        const options = ['--kubeconfig', kube.kubeconfig, '--namespace', NAMESPACE];
        return helm([...args, ...options, ...(args[0] === 'uninstall' ? [] : ['--values', '-'])], stringify(values));
      };
      const must = async (...given: Parameters<typeof run>) => {
        const { status, stderr } = await run(...given);
        assert.equal(status, 0, stderr);
      };
      const upgrade = (values: Values) => must(['upgrade', 'net', chart], { global: { region: 'eu' }, ...values });
      const found = async () => {
        const selected = ['-n', NAMESPACE, '-l', 'app.kubernetes.io/managed-by=Helm', '-o=name'];
        const lists = await Promise.all(KINDS.map((kinds) => kube.kubectl(['get', kinds, ...selected])));
        return lists.join('').split('\n').filter(Boolean);
      };
      const deployments = async () => {
        const names = (await found()).filter((name) => name.startsWith('deployment.apps/'));
        return names.map((name) => name.replace('deployment.apps/', '')).sort();
      };
      const tenants = () => kube.kubectl(['get', 'tenants', '-A', '-o=name']);

      await must(['install', 'net', chart, '--create-namespace'], {
        global: { region: 'eu' },
        tags: { network: true },
        plane: { enabled: true, ...SYNC },
        agent: { ...AGENT },
      });
      assert.deepEqual(await deployments(), ['agent', 'gateway', 'hub', 'redis']);
      await kube.established();
      const [secret, tenant] = await tenantWithCa(NAMESPACE, 'prod');
      await kube.apply(secret, tenant);

      await upgrade({ tags: { network: true }, plane: SYNC, agent: { ...AGENT, enabled: false } });
      assert.deepEqual(await deployments(), ['gateway', 'hub', 'redis']);
      await upgrade({ tags: { network: false }, agent: { ...AGENT, enabled: true } });
      assert.deepEqual(await deployments(), ['agent']);
      assert.equal(await tenants(), 'tenant.isthmus.dev/prod\n');
      // The definition was kept, and is this release's again.
      await upgrade({ plane: SYNC, agent: AGENT });
      assert.deepEqual(await deployments(), ['agent', 'gateway', 'hub', 'redis']);

      await must(['uninstall', 'net']);
      assert.deepEqual(await found(), []);
      assert.equal(await tenants(), 'tenant.isthmus.dev/prod\n');
      // Another release leaves it alone.
      const another = ['install', 'another', CHART];
      assert.match((await run(another, SYNC)).stderr, /tenants\.isthmus\.dev.* cannot be imported/);
      await must(another, { ...SYNC, tenants: { sync: { enabled: true, crd: false } } });
      await must(['uninstall', 'another']);
      assert.equal(await tenants(), 'tenant.isthmus.dev/prod\n');
    }),
  );
});
