import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { scoped, sharedByFile, tempDir, until } from '../harness/index.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { anyDefinition, namespaceOf, newCa, newKey, secretOf, tenantOf, tenantWithCa } from './objects.ts';
import { faultOf, faults, fileOf, files, named, startSync, type WrittenFile, written } from './synced.ts';

const api = sharedByFile((scope) => KubernetesApi.start(scope));

const PLANE = { labels: { 'isthmus.dev/plane': 'isthmus' } };
const caOf = (dir: string, file: string) => named(dir, fileOf(dir, file)?.agents[0]?.certificates.ca);

describe('A tenant whose objects change in unusual ways', { skip: noApiServer }, () => {
  test(
    'keeps its CA while its secret is made again: with another type, as an immutable one, without the label',
    scoped(async (scope) => {
      const kube = await api();
      const of = ['-n', 'types'];
      await kube.apply(namespaceOf('types'), ...(await tenantWithCa('types', 'prod')));
      const { dir } = await startSync(scope, kube, { namespace: 'types', grace: '0s' });
      await written(dir, 'types.prod.yaml');
      const isIn = (ca: string) =>
        until(() => caOf(dir, 'types.prod.yaml') === ca, { what: () => `the CA: ${JSON.stringify(faults(dir))}` });
      let ca = caOf(dir, 'types.prod.yaml');
      for (const more of [{ type: 'example.com/ca' }, { immutable: true }, { immutable: true }, {}]) {
        await kube.kubectl([...of, 'delete', 'secret', 'prod']);
        assert.match(await faultOf(dir, 'Tenant types/prod'), /there is no secret types\/prod with the label/);
        await isIn(ca);
        ca = await newCa();
        await kube.apply({ ...secretOf('types', 'prod', { 'ca.crt': ca }), ...more });
        await isIn(ca);
      }
      for (const label of ['isthmus.dev/plane-', 'isthmus.dev/plane=another']) {
        await kube.kubectl([...of, 'label', '--overwrite', 'secret', 'prod', label]);
        assert.match(await faultOf(dir, 'Tenant types/prod'), /there is no secret types\/prod with the label/);
        await isIn(ca);
        await kube.kubectl([...of, 'label', '--overwrite', 'secret', 'prod', 'isthmus.dev/plane=isthmus']);
        await until(() => faults(dir).length === 0, { what: 'the end of the fault' });
      }
    }),
  );

  test(
    'stays while its object waits for a finalizer, and ends once that is gone',
    scoped(async (scope) => {
      const kube = await api();
      const [secret, tenant] = (await tenantWithCa('waits', 'prod')) as [object, { metadata: object }];
      const metadata = { ...tenant.metadata, finalizers: ['example.com/waits'] };
      await kube.apply(namespaceOf('waits'), secret, { ...tenant, metadata });
      const { dir } = await startSync(scope, kube, { namespace: 'waits', grace: '0s', 'status-namespace': 'waits' });
      await written(dir, 'waits.prod.yaml');
      await kube.kubectl(['-n', 'waits', 'delete', 'tenant', 'prod', '--wait=false']);
      const next = await newCa();
      await kube.apply(secretOf('waits', 'prod', { 'ca.crt': next }));
      await until(() => caOf(dir, 'waits.prod.yaml') === next, { what: 'its rotated CA' });
      const patch = JSON.stringify({ metadata: { finalizers: null } });
      await kube.kubectl(['-n', 'waits', 'patch', 'tenant', 'prod', '--type=merge', '-p', patch]);
      await until(() => files(dir).length === 0, { what: 'its end' });
    }),
  );

  test(
    'is another one within the grace, with another name, and its name goes to another namespace once it is free',
    scoped(async (scope) => {
      const kube = await api();
      for (const each of ['first', 'second']) await kube.apply(namespaceOf(each));
      await kube.apply(...(await tenantWithCa('first', 'prod', { tenant: 'wanted' })));
      const { dir } = await startSync(scope, kube, { grace: '3s' });
      const ours = () => files(dir).filter((name) => /^(first|second)\./.test(name));
      const holders = () => ours().filter((name) => fileOf(dir, name)?.tenant === 'wanted');
      await written(dir, 'first.prod.yaml');
      await kube.apply(...(await tenantWithCa('second', 'prod', { tenant: 'wanted' })));
      await faultOf(dir, 'Tenant second/prod');
      await kube.kubectl(['-n', 'first', 'delete', 'tenant', 'prod']);
      await kube.apply((await tenantWithCa('first', 'prod', { tenant: 'other' }))[1]);
      await until(
        () => {
          assert.ok(holders().length <= 1, `${holders()}`);
          return fileOf(dir, 'first.prod.yaml')?.tenant === 'other' && holders()[0] === 'second.prod.yaml';
        },
        { what: () => `both: ${ours()}, ${JSON.stringify(faults(dir))}` },
      );
      await kube.kubectl(['-n', 'second', 'delete', 'tenant', 'prod']);
      await kube.apply((await tenantWithCa('second', 'prod', { tenant: 'wanted' }))[1]);
      const until5s = performance.now() + 5000;
      await until(() => performance.now() > until5s, { what: 'the grace' });
      assert.deepEqual(ours(), ['first.prod.yaml', 'second.prod.yaml']);
    }),
  );

  test(
    'has a file of its own beside those of objects whose names look like files, folders and digests',
    scoped(async (scope) => {
      const kube = await api();
      const names = ['prod', 'prod.yaml', 'prod.0123456789abcdef', '0', 'files', 'sync.json', 'half-prod'];
      await kube.apply(namespaceOf('looks'), namespaceOf('clusters'), namespaceOf('secrets'));
      for (const [index, name] of names.entries())
        await kube.apply(...(await tenantWithCa('looks', name, { tenant: `t-${index}` })));
      for (const namespace of ['clusters', 'secrets']) await kube.apply(...(await tenantWithCa(namespace, 'tenants')));
      const { dir } = await startSync(scope, kube, { grace: '0s' });
      const ours = () => files(dir).filter((name) => /^(looks|clusters|secrets)\./.test(name));
      const all = [
        ...names.map((name) => `looks.${name}.yaml`),
        'clusters.tenants.yaml',
        'secrets.tenants.yaml',
      ].sort();
      await until(() => ours().length === all.length, { what: () => `${ours()}` });
      assert.deepEqual(ours(), all);
      await kube.kubectl(['-n', 'looks', 'delete', 'tenant', 'prod']);
      await until(() => ours().length === all.length - 1, { what: () => `${ours()}` });
      for (const name of all.filter((each) => each !== 'looks.prod.yaml')) assert.ok(caOf(dir, name), name);
    }),
  );

  test(
    'of a Cluster stays while that is paused, takes what overrides it, and ends once it asks for another plane',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(anyDefinition('cluster.x-k8s.io', 'Cluster', 'clusters', 'v1beta2'), namespaceOf('paused'));
      await kube.established();
      const cluster = { apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster' };
      const metadata = { namespace: 'paused', name: 'prod', ...PLANE };
      const owned = { labels: { 'cluster.x-k8s.io/cluster-name': 'prod' } };
      const secrets = async () => [
        secretOf('paused', 'prod-ca', { 'tls.crt': await newCa() }, owned),
        secretOf('paused', 'prod-sa', { 'tls.crt': newKey() }, owned),
      ];
      await kube.apply({ ...cluster, metadata, spec: {} }, ...(await secrets()));
      const { dir } = await startSync(scope, kube, { from: 'cluster-api', grace: '0s', namespace: 'paused' });
      const before = (await written(dir, 'paused.prod.yaml')).callers[0]?.certificates.ca;
      await kube.apply({ ...cluster, metadata, spec: { paused: true } }, ...(await secrets()));
      const isRotated = ({ callers }: WrittenFile) => callers[0]?.certificates.ca !== before;
      await written(dir, 'paused.prod.yaml', isRotated);
      await kube.apply(tenantOf('paused', 'prod', { limits: { tunnels: 5 } }));
      await written(dir, 'paused.prod.yaml', ({ limits }) => limits?.tunnels === 5);
      // What only overrides is no tenant by itself.
      await kube.kubectl(['-n', 'paused', 'label', '--overwrite', 'cluster', 'prod', 'isthmus.dev/plane=another']);
      await written(dir, 'paused.prod.yaml', ({ callers }) => callers === undefined);
      await kube.kubectl(['-n', 'paused', 'label', 'tenant', 'prod', 'isthmus.dev/plane=another']);
      await until(() => files(dir).length === 0, { what: 'its end' });
    }),
  );

  test(
    'has the status that a sync gives it, whatever somebody else has written there at length',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('status'), ...(await tenantWithCa('status', 'prod')));
      const long = { type: 'Long', status: 'True', reason: 'Long', message: 'x'.repeat(30_000) };
      const conditions = [{ ...long, lastTransitionTime: '2026-01-01T00:00:00Z' }];
      const flags = ['--server-side', '--force-conflicts', '--field-manager=other', '--subresource=status'];
      const say = (tenant: string) => {
        const own = { ...tenantOf('status', 'prod', {}), spec: undefined, status: { tenant, conditions } };
        return kube.kubectl(['apply', ...flags, '-f', '-'], JSON.stringify(own));
      };
      await assert.rejects(say('x'.repeat(500_000)), /status\.tenant: Too long/);
      await say('x'.repeat(63));
      await startSync(scope, kube, { namespace: 'status', 'status-namespace': 'status' });
      const found = async () => JSON.parse(await kube.kubectl(['-n', 'status', 'get', 'tenant', 'prod', '-o', 'json']));
      const isTold = async () => {
        const { status: said } = await found();
        const types = said.conditions.map(({ type }: { type: string }) => type);
        return said.tenant === 'status-prod' && types.join() === 'Accepted,Connected';
      };
      await until(isTold, { deadline: 60_000, what: 'its own status' });
    }),
  );

  test(
    'stays as it was, and says so, once the owner of a secret of another namespace withdraws its permission',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('owner'), namespaceOf('guest'));
      const metadata = { ...PLANE, annotations: { 'isthmus.dev/allow-tenants-of': 'guest' } };
      const shared = secretOf('owner', 'shared', { 'ca.crt': await newCa() }, metadata);
      const ca = { secretRef: { namespace: 'owner', name: 'shared', key: 'ca.crt' } };
      await kube.apply(shared, tenantOf('guest', 'prod', { agents: [{ certificates: { ca } }] }));
      const { dir } = await startSync(scope, kube, { grace: '0s' });
      await written(dir, 'guest.prod.yaml');
      await kube.kubectl(['-n', 'owner', 'annotate', 'secret', 'shared', 'isthmus.dev/allow-tenants-of-']);
      assert.match(
        await faultOf(dir, 'Tenant guest/prod'),
        /owner\/shared is of another namespace, and does not allow/,
      );
      assert.ok(caOf(dir, 'guest.prod.yaml'));
      await kube.kubectl(['-n', 'owner', 'delete', 'secret', 'shared']);
      assert.match(await faultOf(dir, 'Tenant guest/prod'), /owner\/shared/);
    }),
  );

  test(
    'stays on a disk that is full, and is in force with the newest state once there is room',
    { skip: spawnSync('unshare', ['--mount', 'true']).status === 0 ? false : 'it may not mount (CAP_SYS_ADMIN)' },
    scoped(async (scope) => {
      const kube = await api();
      const place = await tempDir(scope);
      execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', place]);
      scope.defer(() => void execFileSync('umount', ['-l', place]));
      await kube.apply(namespaceOf('full'), ...(await tenantWithCa('full', 'prod')));
      const { dir, program } = await startSync(scope, kube, { namespace: 'full', grace: '0s' }, place);
      await written(dir, 'full.prod.yaml');
      const before = caOf(dir, 'full.prod.yaml');
      const filler = join(dir, 'filler');
      assert.throws(() => writeFileSync(filler, Buffer.alloc(1024 * 1024)), /ENOSPC/);
      const next = await newCa();
      await kube.apply(secretOf('full', 'prod', { 'ca.crt': next }));
      const says = ({ fault }: { fault?: unknown }) => /it cannot be written: ENOSPC/.test(String(fault));
      await program.waitForLog(says, { what: 'a log line' });
      assert.equal(caOf(dir, 'full.prod.yaml'), before);
      rmSync(filler);
      await until(() => caOf(dir, 'full.prod.yaml') === next, { what: 'the new CA' });
      await kube.kubectl(['-n', 'full', 'delete', 'tenant', 'prod']);
      await until(() => files(dir).length === 0, { what: 'its end' });
    }),
  );

  test(
    'keeps its file where its namespace is all that a sync reads, and that goes and comes again',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('only'), ...(await tenantWithCa('only', 'prod')));
      const { dir } = await startSync(scope, kube, { namespace: 'only', grace: '5m' });
      await written(dir, 'only.prod.yaml');
      const finalize = { ...namespaceOf('only'), spec: { finalizers: [] } };
      await kube.kubectl(['delete', 'namespace', 'only', '--wait=false']);
      await kube.kubectl(['-n', 'only', 'delete', 'tenant,secret', '--all']);
      await kube.kubectl(['replace', '--raw', '/api/v1/namespaces/only/finalize', '-f', '-'], JSON.stringify(finalize));
      assert.deepEqual(files(dir), ['only.prod.yaml']);
      await kube.apply(namespaceOf('only'));
      const [secret, tenant] = await tenantWithCa('only', 'prod', { limits: { tunnels: 5 } });
      await kube.apply(secret, tenant);
      await written(dir, 'only.prod.yaml', ({ limits }) => limits?.tunnels === 5);
    }),
  );
});
