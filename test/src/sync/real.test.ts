import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { parse } from 'yaml';
import { ROOT, scoped, tempDir, until } from '../harness/index.ts';
import { renderFor } from '../k8s/chart.ts';
import { clusterApiDefinition, KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { namespaceOf, newCa, newKey, profileDefinition, secretOf, tenantWithCa } from './objects.ts';
import { faultOf, fileOf, files, startSync, written } from './synced.ts';

describe("Cluster API's own definition of Cluster", { skip: noApiServer }, () => {
  test(
    'has objects that become tenants once their secrets are there',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      await kube.apply(namespaceOf('acme'), await clusterApiDefinition('cluster.x-k8s.io_clusters'));
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

describe('Two syncs beside one of another version', { skip: noApiServer }, () => {
  test(
    'leave what they do not know where it is, and do not write a status in turns',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const definition = parse(readFileSync(join(ROOT, 'k8s/crd/tenants.yaml'), 'utf8'));
      const { spec, status } = definition.spec.versions[0].schema.openAPIV3Schema.properties;
      spec.properties.later = { type: 'string' };
      status.properties.later = { type: 'string' };
      await kube.apply(definition, namespaceOf('plane'), namespaceOf('acme'));
      for (const name of ['prod', 'later', 'clock']) await kube.apply(...(await tenantWithCa('acme', name)));
      const of = (name: string) => ['-n', 'acme', 'tenant', name];
      const found = async (name: string) => JSON.parse(await kube.kubectl(['get', ...of(name), '-o', 'json']));
      const told = async (name: string) =>
        (await found(name)).status?.conditions?.find(({ type }: Typed) => type === 'Accepted');
      const merge = (name: string, value: object, ...more: string[]) =>
        kube.kubectl(['patch', ...of(name), '--type=merge', ...more, '-p', JSON.stringify(value)]);
      /** Waits until one of the syncs has looked at all statuses. */
      let turns = 0;
      const turn = async () => {
        await merge('clock', { spec: { limits: { tunnels: ++turns } } });
        const isTold = async () => {
          const { metadata, status: said } = await found('clock');
          return said?.observedGeneration === metadata.generation;
        };
        await until(isTold, { deadline: 60_000, what: 'a status of the newest state' });
      };
      const syncs = await Promise.all([1, 2].map(() => startSync(scope, kube, { 'status-namespace': 'plane' })));
      await turn();
      // What a sync of a later version says, and what it reads.
      const foreign = {
        type: 'Later',
        status: 'True',
        reason: 'Later',
        message: '',
        lastTransitionTime: '2026-01-01T00:00:00Z',
      };
      const { conditions } = (await found('prod')).status;
      await merge('prod', { status: { later: 'said', conditions: [foreign, ...conditions] } }, '--subresource=status');
      await merge('later', { spec: { later: 'asked' } });
      await merge('prod', { spec: { limits: { tunnels: 5 } } });
      await until(async () => (await told('later'))?.status === 'False', { what: 'a fault' });
      await turn();
      const said = await found('prod');
      assert.equal(said.status.observedGeneration, said.metadata.generation);
      assert.equal(said.status.later, 'said');
      assert.deepEqual(said.status.conditions.map(({ type }: Typed) => type).sort(), [
        'Accepted',
        'Connected',
        'Later',
      ]);
      assert.match((await told('later')).message, /later.*The last good state stays in force/);
      for (const { dir } of syncs)
        assert.deepEqual(files(dir), ['acme.clock.yaml', 'acme.later.yaml', 'acme.prod.yaml']);
      const lease = [
        'get',
        '-n',
        'plane',
        'lease',
        'isthmus-tenants-sync-isthmus',
        '-o',
        'jsonpath={.spec.holderIdentity}',
      ];
      const leader = await kube.kubectl(lease);
      for (let times = 0; times < 3; times++) await turn();
      const holder = syncs.find(({ program }) => program.logs.some(({ identity }) => identity === leader));
      await holder?.program.kill();
      await until(async () => (await kube.kubectl(lease)) !== leader, { deadline: 60_000, what: 'another leader' });
      await turn();
      assert.equal((await found('prod')).metadata.resourceVersion, said.metadata.resourceVersion);
    }),
  );
});

interface Provider {
  readonly name: string;
  readonly cluster: { readonly server: string };
}

interface Typed {
  readonly type: string;
}

describe('A Tenant that asks for a ClusterProfile', { skip: noApiServer }, () => {
  test(
    'says what became of it, and takes back what was made once it no longer asks',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      await kube.apply(namespaceOf('plane'), namespaceOf('acme'));
      const names = ['own', 'theirs'] as const;
      const tenants = new Map<string, object>();
      for (const name of names) {
        const [secret, tenant] = await tenantWithCa('acme', name);
        tenants.set(name, tenant);
        await kube.apply(secret, withProfile(tenant));
      }
      const proxy = { 'proxy-url': 'https://gateways.example:8090' };
      const { program } = await startSync(scope, kube, { 'status-namespace': 'plane', ...proxy });
      const get = async (what: string, name: string) =>
        JSON.parse((await kube.kubectl(['get', '-n', 'acme', what, name, '-o', 'json', '--ignore-not-found'])) || '{}');
      const published = async (name: string) => {
        const found = (await get('tenant', name)).status?.conditions?.find(({ type }: Typed) => type === 'Published');
        return found ? `${found.status} ${found.message}` : '';
      };
      const says = async (wanted: RegExp) => {
        let said: string[] = [];
        await until(
          async () => {
            said = await Promise.all(names.map(published));
            return said.every((each) => wanted.test(each));
          },
          { deadline: 60_000, what: () => `${wanted} in ${said}` },
        );
      };
      await says(/^False the API server has no clusterprofiles\.multicluster\.x-k8s\.io$/);
      await kube.apply(profileDefinition());
      await kube.established();
      const manager = { metadata: { namespace: 'acme', name: 'theirs' }, spec: { displayName: 'theirs' } };
      const profile = { apiVersion: 'multicluster.x-k8s.io/v1alpha2', kind: 'ClusterProfile', ...manager };
      const other = { name: 'other', cluster: { server: 'https://other.example' } };
      await kube.apply(profile);
      const provide = (...accessProviders: object[]) =>
        kube.kubectl(
          ['apply', '--server-side', '--force-conflicts', '--field-manager=other', '--subresource=status', '-f', '-'],
          JSON.stringify({ ...profile, status: { accessProviders } }),
        );
      await provide(other);
      await says(/^True /);
      const entries = async (name: string): Promise<Provider[]> =>
        (await get('clusterprofile', name)).status?.accessProviders ?? [];
      const providers = async (name: string) => (await entries(name)).map((each) => each.name).sort();
      assert.deepEqual([await providers('own'), await providers('theirs')], [['isthmus'], ['isthmus', 'other']]);
      // The other one takes over what is ours.
      await provide(other, { name: 'isthmus', cluster: { server: 'https://evil.example' } });
      const mended = async () => {
        const servers = (await entries('theirs')).map(({ cluster }) => cluster.server).sort();
        return isDeepStrictEqual(servers, ['https://kubernetes.default.svc', 'https://other.example']);
      };
      await until(mended, { deadline: 120_000, what: 'its own entry again' });
      await kube.apply(...tenants.values());
      await says(/^$/);
      assert.deepEqual(await get('clusterprofile', 'own'), {});
      assert.deepEqual(await providers('theirs'), ['other']);
      const lines = program.logs.filter(({ msg }) => String(msg).includes('ClusterProfile cannot be written'));
      assert.deepEqual(lines.map(({ what }) => what).sort(), ['ClusterProfile acme/own', 'ClusterProfile acme/theirs']);
    }),
  );
});

/** The object with `clusterProfile: true`. */
function withProfile(tenant: object): object {
  return { ...tenant, spec: { ...(tenant as { spec: object }).spec, clusterProfile: true } };
}

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
      const [secret, tenant] = await tenantWithCa('acme', 'prod');
      await kube.apply(secret, withProfile(tenant));
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
      const conditions = ['get', '-n', 'acme', 'tenant', 'prod', '-o', 'jsonpath={.status.conditions[*].status}'];
      await until(async () => (await kube.kubectl(conditions)) === 'True Unknown True', { what: 'its conditions' });
      await kube.apply(tenant);
      await until(async () => (await kube.kubectl(conditions)) === 'True Unknown', {
        what: 'its conditions without it',
      });
      await assert.rejects(kube.kubectl(profile), /not found/);
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
