import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { ROOT, scoped, tempDir, until } from '../harness/index.ts';
import { renderFor } from '../k8s/chart.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { namespaceOf, newCa, newKey, profileDefinition, secretOf, tenantWithCa } from './objects.ts';
import { faultOf, fileOf, files, startSync, written } from './synced.ts';

const CLUSTER_API = 'sigs.k8s.io/cluster-api@v1.14.2';
const DOWNLOAD_MS = 300_000;

/** Cluster API's own definition of Cluster, out of its Go module. */
async function clusterDefinition(): Promise<object> {
  const { stdout } = await promisify(execFile)('go', ['mod', 'download', '-json', CLUSTER_API], {
    timeout: DOWNLOAD_MS,
    cwd: join(ROOT, 'test/cluster/kubernetes'),
  });
  const [path] = globSync('**/config/crd/bases/cluster.x-k8s.io_clusters.yaml', { cwd: JSON.parse(stdout).Dir });
  return parse(readFileSync(join(JSON.parse(stdout).Dir, path ?? ''), 'utf8'));
}

describe("Cluster API's own definition of Cluster", { skip: noApiServer }, () => {
  test(
    'has objects that become tenants once their secrets are there',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      await kube.apply(namespaceOf('acme'), await clusterDefinition());
      await kube.established();
      const { dir } = await startSync(scope, kube, { from: 'cluster-api' });
      const metadata = { namespace: 'acme', name: 'prod', labels: { 'isthmus.dev/plane': 'isthmus' } };
      const spec = { clusterNetwork: { pods: { cidrBlocks: ['10.0.0.0/16'] } } };
      await kube.apply({ apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster', metadata, spec });
      assert.match(await faultOf(dir, 'Cluster acme/prod'), /there is no secret acme\/prod-ca yet/);
      const owned = { labels: { 'cluster.x-k8s.io/cluster-name': 'prod' } };
      const ca = await newCa();
      await kube.apply(
        secretOf('acme', 'prod-ca', { 'tls.crt': ca, 'tls.key': 'secret' }, owned),
        secretOf('acme', 'prod-sa', { 'tls.crt': newKey(), 'tls.key': 'secret' }, owned),
      );
      const { callers } = await written(dir, 'acme.prod.yaml');
      assert.equal(readFileSync(join(dir, callers[0]?.certificates.ca ?? ''), 'utf8'), ca);
    }),
  );
});

describe('A sync beside a definition of an earlier version', { skip: noApiServer }, () => {
  test(
    'writes the status that this one has',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const definition = parse(readFileSync(join(ROOT, 'k8s/crd/tenants.yaml'), 'utf8'));
      delete definition.spec.versions[0].schema.openAPIV3Schema.properties.status.properties.from;
      await kube.apply(definition, namespaceOf('plane'), namespaceOf('acme'));
      await kube.apply(...(await tenantWithCa('acme', 'prod')));
      await startSync(scope, kube, { 'status-namespace': 'plane' });
      const status = async () =>
        JSON.parse(await kube.kubectl(['get', '-n', 'acme', 'tenant', 'prod', '-o', 'json'])).status;
      const accepted = await until(async () => (await status())?.conditions?.[0], { what: 'a status' });
      assert.deepEqual([accepted.type, accepted.status], ['Accepted', 'True']);
      assert.equal((await status()).from, undefined);
    }),
  );
});

describe("The chart's own service account", { skip: noApiServer }, () => {
  test(
    'may do all that a sync does, and reads no secret by its name',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const proxy = { url: 'https://gateways.example.com:8090' };
      const sync = { enabled: true, crd: false, from: ['cluster-api', 'kamaji'], proxy };
      const rendered = await renderFor('plane', { agentTokens: { enabled: false }, tenants: { sync } });
      const [plane] = rendered.flatMap(({ kind, metadata }) =>
        kind === 'ServiceAccount' ? [`${metadata.namespace}`] : [],
      );
      assert.ok(plane);
      await kube.apply(namespaceOf(plane), namespaceOf('acme'), profileDefinition());
      await kube.apply(...rendered.filter(({ kind }) => /^(ServiceAccount|(Cluster)?Role(Binding)?)$/.test(kind)));
      await kube.apply(...(await tenantWithCa('acme', 'prod', { clusterProfile: true })));
      const token = (await kube.kubectl(['create', 'token', 'gateway', '-n', plane])).trim();
      const config = JSON.parse(readFileSync(kube.kubeconfig, 'utf8'));
      const kubeconfig = join(await tempDir(scope), 'kubeconfig');
      writeFileSync(kubeconfig, JSON.stringify({ ...config, users: [{ name: 'test', user: { token } }] }));
      const flags = { 'status-namespace': plane, 'proxy-url': proxy.url };
      const { dir } = await startSync(scope, { kubeconfig }, flags);
      await written(dir, 'acme.prod.yaml', (file) => file.callers?.length === 1);
      const profile = [
        'get',
        '-n',
        'acme',
        'clusterprofile',
        'prod',
        '-o',
        'jsonpath={.status.accessProviders[*].name}',
      ];
      await until(async () => (await kube.kubectl(profile).catch(() => '')) === 'isthmus', {
        what: 'a ClusterProfile',
      });
      const accepted = ['get', '-n', 'acme', 'tenant', 'prod', '-o', 'jsonpath={.status.conditions[0].status}'];
      assert.equal(await kube.kubectl(accepted), 'True');
      const asSync = [`--as=system:serviceaccount:${plane}:gateway`, '-n', 'acme'];
      for (const verb of ['get', 'update', 'delete'])
        await assert.rejects(kube.kubectl(['auth', 'can-i', verb, 'secrets', ...asSync]));
    }),
  );
});

/** A database that a few objects fill. */
const QUOTA_BYTES = 8 * 1024 * 1024;

describe('An etcd that is full', { skip: noApiServer }, () => {
  test(
    'takes no tenant away, not even from a sync that starts meanwhile',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope, { quotaBytes: QUOTA_BYTES });
      await kube.apply(namespaceOf('plane'), namespaceOf('acme'));
      await kube.apply(...(await tenantWithCa('acme', 'prod')));
      const filler = 'x'.repeat(500_000);
      const fill = async (name: string) => {
        const metadata = { namespace: 'acme', name };
        await kube.apply({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { filler } });
      };
      await assert.rejects(async () => {
        for (let index = 0; index < 100; index++) await fill(`filler-${index}`);
      }, /database space exceeded/);
      const { dir, program } = await startSync(scope, kube, { grace: '0s', 'status-namespace': 'plane' });
      await written(dir, 'acme.prod.yaml');
      await program.waitForLog(({ msg }) => /the lease plane\/.*database space exceeded/.test(String(msg)), {
        what: 'a log line of the lease',
      });
      assert.deepEqual(files(dir), ['acme.prod.yaml']);
      assert.equal(fileOf(dir, 'acme.prod.yaml')?.tenant, 'acme-prod');
    }),
  );
});
