import assert from 'node:assert/strict';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { startAdmission } from '@isthmus/admission';
import { CertificateAuthority, LOOPBACK } from '@isthmus/certificates';
import { planeEvents } from '@isthmus/tunnel';
import {
  AS_IN_IMAGE,
  Authority,
  connectThrough,
  freePort,
  greeter,
  newTrust,
  nextChunk,
  type Program,
  residentBytes,
  scoped,
  sharedByFile,
  startAgent,
  startServer,
  tempDir,
  unlessBundled,
  until,
} from '../harness/index.ts';
import { TenantTrust } from '../tenants/tenant-trust.ts';
import { ApiDoor } from './api-door.ts';
import { KubernetesApi, noApiServer, noBumps, noSnapshots } from './kubernetes-api.ts';
import {
  anyDefinition,
  namespaceOf,
  newCa,
  newKey,
  profileDefinition,
  secretOf,
  tenantOf,
  tenantWithCa,
} from './objects.ts';
import { faultOf, faults, fileOf, files, named, type Synced, startSync, written } from './synced.ts';

const api = sharedByFile((scope) => KubernetesApi.start(scope));

describe('isthmus tenants sync beside a real API server', { skip: noApiServer }, () => {
  test(
    'writes a tenant with what it names, follows its secret, and ends it after its grace',
    scoped(async (scope) => {
      const kube = await api();
      const { dir } = await startSync(scope, kube, { grace: '1s' });
      await kube.apply(namespaceOf('simple'), ...(await tenantWithCa('simple', 'prod')));
      const { tenant, agents, source } = await written(dir, 'simple.prod.yaml');
      assert.equal(tenant, 'simple-prod');
      assert.deepEqual(source, { kind: 'Tenant', namespace: 'simple', name: 'prod' });
      const before = agents[0]?.certificates.ca;
      const both = named(dir, before) + (await newCa());
      await kube.apply(secretOf('simple', 'prod', { 'ca.crt': both }));
      const after = await written(dir, 'simple.prod.yaml', (file) => file.agents[0]?.certificates.ca !== before);
      assert.equal(named(dir, after.agents[0]?.certificates.ca), both);
      await kube.kubectl(['-n', 'simple', 'delete', 'tenant', 'prod']);
      await until(() => !files(dir).includes('simple.prod.yaml'), { what: 'the end of the tenant' });
    }),
  );

  test(
    'is explained by kubectl, which shows what is in force, from what, and for whom in columns',
    scoped(async () => {
      const kube = await api();
      let explained = '';
      const explain = async () => {
        explained = await kube.kubectl(['explain', 'tenant.spec.agents.certificates.ca.secretRef']).catch(() => '');
        return explained !== '';
      };
      // The API server tells of a new definition a moment later.
      await until(explain, { what: 'what kubectl knows of a Tenant' });
      assert.match(explained, /^GROUP: +isthmus\.dev\nKIND: +Tenant\nVERSION: +v1alpha1\n/);
      assert.match(explained, /A key of a secret, which has the label isthmus\.dev\/plane\./);
      assert.match(explained, /\n {2}name\t<string> -required-\n {4}Name of the secret\.\n/);
      const all = await kube.kubectl(['explain', 'tenant', '--recursive']);
      assert.match(all, /\n {2}spec\t<Object> -required-\n[\s\S]*\n {6}tokenReview\t<Object>\n/);
      await kube.apply(namespaceOf('columns'), ...(await tenantWithCa('columns', 'prod')));
      const [header] = (await kube.kubectl(['get', '-n', 'columns', 'tenants', '-o', 'wide'])).split('\n');
      assert.equal(header?.replace(/ +/g, ' ').trim(), 'NAME ACCEPTED FROM AGENTS SESSIONS CALLERS AGE MESSAGE');
    }),
  );

  test(
    "refuses what no API server refuses: others' secrets, large values, names of files, what two claim",
    scoped(async (scope) => {
      const kube = await api();
      const { dir } = await startSync(scope, kube);
      const ca = (name: string, namespace?: string, key = 'ca.crt') => ({
        agents: [{ certificates: { ca: { secretRef: { name, key, ...(namespace && { namespace }) } } } }],
      });
      const large = `${await newCa()}${'#'.repeat(900_000)}`;
      await kube.apply(namespaceOf('victim'), namespaceOf('hostile'));
      await kube.apply(
        secretOf('victim', 'ca', { 'ca.crt': await newCa() }),
        secretOf(
          'victim',
          'shared',
          { 'ca.crt': await newCa() },
          {
            labels: { 'isthmus.dev/plane': 'isthmus' },
            annotations: { 'isthmus.dev/allow-tenants-of': 'other, hostile' },
          },
        ),
        secretOf('hostile', 'unlabelled', { 'ca.crt': await newCa() }, {}),
        secretOf('hostile', 'large', { 'ca.crt': large }),
        secretOf('hostile', 'nul', { 'ca.crt': 'a\0b' }),
        secretOf('hostile', 'config', {
          config:
            'clusters: [{name: a, cluster: {server: "https://evil.example"}}]\nusers: [{name: a, user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}}]\n',
        }),
        tenantOf('hostile', 'stolen', ca('ca', 'victim')),
        tenantOf('hostile', 'allowed', ca('shared', 'victim')),
        tenantOf('hostile', 'unlabelled', ca('unlabelled')),
        tenantOf('hostile', 'large', ca('large')),
        tenantOf('hostile', 'nul', ca('nul')),
        tenantOf('hostile', 'slashes', ca('../../victim/ca')),
        tenantOf('hostile', 'key', ca('nul', undefined, '../../../../etc/passwd')),
        tenantOf('hostile', 'kubeconfig', {
          agents: [{ tokenReview: { kubeconfig: { secretRef: { name: 'config', key: 'config' } } } }],
        }),
      );
      await written(dir, 'hostile.allowed.yaml');
      const fault = (name: string) => faultOf(dir, `Tenant hostile/${name}`);
      assert.match(
        await fault('stolen'),
        /^agents\[0\]\.certificates\.ca: secret victim\/ca is of another namespace, and does not allow/,
      );
      assert.match(
        await fault('unlabelled'),
        /there is no secret hostile\/unlabelled with the label isthmus\.dev\/plane/,
      );
      assert.match(await fault('large'), /it has 90\d\d\d\d bytes: at most 262144 are read/);
      assert.match(await fault('nul'), /agents\[0\]\.certificates\.ca/);
      assert.match(await fault('slashes'), /there is no secret hostile\/\.\.\/\.\.\/victim\/ca/);
      assert.match(await fault('key'), /has no key/);
      assert.match(await fault('kubeconfig'), /tokenFile of a kubeconfig is not supported here/);
      const own = files(dir).filter((name) => !name.startsWith('columns.'));
      assert.deepEqual(own, ['hostile.allowed.yaml']);
      for (const spec of [
        { tenant: '../x' },
        { agents: [{ certificates: { ca: '/etc/shadow' } }] },
        { agents: [{}] },
        { callers: [{ unixSocket: '/x' }] },
      ])
        await assert.rejects(
          kube.apply(tenantOf('hostile', 'refused', spec)),
          /Invalid value|invalid|unknown|field not declared/,
        );
    }),
  );

  test(
    'gives what two objects claim to the older one, and the name of a tenant cannot change',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('claims'));
      await kube.apply(...(await tenantWithCa('claims', 'older', { tenant: 'wanted' })));
      // Creation times are whole seconds.
      await kube.kubectl(['wait', '-n', 'claims', '--for=create', 'tenant/older']);
      const created = Date.parse(
        await kube.kubectl(['get', '-n', 'claims', 'tenant', 'older', '-o', 'jsonpath={.metadata.creationTimestamp}']),
      );
      await until(() => Date.now() > created + 1000, { what: 'the next second' });
      await kube.apply(...(await tenantWithCa('claims', 'a-later', { tenant: 'wanted' })));
      const { dir } = await startSync(scope, kube);
      await written(dir, 'claims.older.yaml');
      assert.match(await faultOf(dir, 'Tenant claims/a-later'), /^claims\.a-later\.yaml:1: tenant: .*wanted/);
      await assert.rejects(kube.apply(tenantOf('claims', 'older', { tenant: 'other' })), /tenant cannot change/);
      await kube.kubectl(['annotate', '-n', 'claims', 'tenant', 'older', 'isthmus.dev/remove=now']);
      await kube.kubectl(['delete', '-n', 'claims', 'tenant', 'older']);
      await written(dir, 'claims.a-later.yaml');
      assert.ok(!files(dir).includes('claims.older.yaml'));
    }),
  );

  test(
    "makes tenants of Cluster API's and Kamaji's objects, which a Tenant of the same name overrides",
    scoped(async (scope) => {
      const kube = await api();
      for (const [group, kind, plural, version] of [
        ['cluster.x-k8s.io', 'Cluster', 'clusters', 'v1beta2'],
        ['kamaji.clastix.io', 'TenantControlPlane', 'tenantcontrolplanes', 'v1alpha1'],
      ] as const) {
        await kube.apply(anyDefinition(group, kind, plural, version));
      }
      await kube.established();
      const { dir } = await startSync(scope, kube, { from: 'cluster-api,kamaji', grace: '1s' });
      const of = (namespace: string, name: string, more: object = {}) => ({ namespace, name, ...more });
      const asked = { labels: { 'isthmus.dev/plane': 'isthmus' } };
      const owned = { labels: { 'cluster.x-k8s.io/cluster-name': 'one' } };
      await kube.apply(namespaceOf('hoster'));
      await kube.apply(
        { apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster', metadata: of('hoster', 'one', asked), spec: {} },
        { apiVersion: 'cluster.x-k8s.io/v1beta2', kind: 'Cluster', metadata: of('hoster', 'not-asked'), spec: {} },
        {
          apiVersion: 'kamaji.clastix.io/v1alpha1',
          kind: 'TenantControlPlane',
          metadata: of('hoster', 'two', { annotations: asked.labels }),
          spec: {},
        },
      );
      assert.match(
        await faultOf(dir, 'Cluster hoster/one'),
        /there is no secret hoster\/one-sa yet; callers\[0\]\.certificates\.ca: there is no secret hoster\/one-ca yet/,
      );
      const [ca, sa] = [await newCa(), newKey()];
      await kube.apply(
        secretOf('hoster', 'one-ca', { 'tls.crt': ca, 'tls.key': 'secret' }, owned),
        secretOf('hoster', 'one-sa', { 'tls.crt': sa, 'tls.key': 'secret' }, owned),
        secretOf(
          'hoster',
          'two-ca',
          { 'ca.crt': await newCa(), 'ca.key': 'secret' },
          { labels: { 'kamaji.clastix.io/name': 'two' } },
        ),
        secretOf(
          'hoster',
          'two-sa-certificate',
          { 'sa.pub': newKey(), 'sa.key': 'secret' },
          { labels: { 'kamaji.clastix.io/name': 'two' } },
        ),
      );
      const { tenant, source, agents, callers } = await written(dir, 'hoster.one.yaml');
      assert.deepEqual([tenant, source.kind], ['hoster-one', 'Cluster']);
      assert.equal(named(dir, agents[0]?.tokens.keys), sa);
      assert.equal(agents[0]?.tokens.subject, 'system:serviceaccount:kube-system:konnectivity-agent');
      assert.equal(named(dir, callers[0]?.certificates.ca), ca);
      assert.deepEqual(callers[0]?.certificates.names, ['kube-apiserver', 'kube-apiserver-kubelet-client']);
      assert.equal((await written(dir, 'hoster.two.yaml')).source.kind, 'TenantControlPlane');
      await kube.apply(tenantOf('hoster', 'one', { limits: { tunnels: 7 } }));
      assert.ok((await written(dir, 'hoster.one.yaml', ({ limits }) => limits?.tunnels === 7)).agents[0]?.tokens);
      for (const path of globSync('**/*', { cwd: join(dir, '.files') })) assert.ok(!path.includes('..'));
      assert.ok(!files(dir).includes('hoster.not-asked.yaml'));
      await kube.kubectl(['delete', '-n', 'hoster', 'tenant', 'one']);
      await written(dir, 'hoster.one.yaml', ({ limits }) => limits === undefined);
      await kube.kubectl(['label', '-n', 'hoster', 'cluster', 'one', 'isthmus.dev/plane-']);
      await kube.kubectl(['delete', '-n', 'hoster', 'tenantcontrolplane', 'two']);
      await until(() => files(dir).every((name) => !name.startsWith('hoster.')), {
        what: () => `the end of both: ${files(dir)}`,
      });
    }),
  );

  test(
    'is killed before and after each of its renames, and leaves nothing that is half',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('killed'));
      const folder = '/\\.files/killed\\.NAME\\.[0-9a-f]+$';
      const file = '/killed\\.NAME\\.yaml$';
      // The first rename is of the first state, which is whole.
      const points = [folder, file].flatMap((path) =>
        ['before', 'after'].map((when) => `${when} 2 renameSync ${path}`),
      );
      for (const [index, point] of points.entries()) {
        const name = `at-${index}`;
        const before = await newCa();
        const after = before + (await newCa());
        const [, tenant] = await tenantWithCa('killed', name);
        await kube.apply(secretOf('killed', name, { 'ca.crt': before }), tenant);
        const env = {
          NODE_OPTIONS: `${AS_IN_IMAGE.NODE_OPTIONS} --import ${new URL('./killed-at.mjs', import.meta.url)}`,
          KILLED_AT: point.replace('NAME', name),
        };
        const { dir, program } = await startSync(scope, kube, {}, undefined, { ...AS_IN_IMAGE, ...env });
        const caNow = () => named(dir, fileOf(dir, `killed.${name}.yaml`)?.agents[0]?.certificates.ca);
        await written(dir, `killed.${name}.yaml`);
        await kube.apply(secretOf('killed', name, { 'ca.crt': after }));
        assert.deepEqual((await program.ended()).signal, 'SIGKILL');
        assert.equal(caNow(), index < 3 ? before : after, point);
        await startSync(scope, kube, {}, dir);
        await until(() => caNow() === after, { what: () => `the new CA after a kill ${point}` });
        assert.deepEqual(globSync('**/.half-*', { cwd: dir }), []);
        await kube.kubectl(['-n', 'killed', 'delete', 'tenant', name]);
      }
    }),
  );

  test(
    'ends the tenants of a namespace that is deleted, in whatever order that happens, and no others',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('gone'), namespaceOf('stays'));
      for (const namespace of ['gone', 'stays'])
        for (const name of ['one', 'two']) await kube.apply(...(await tenantWithCa(namespace, name)));
      const { dir } = await startSync(scope, kube, { grace: '1s' });
      const here = () => files(dir).filter((name) => /^(gone|stays)\./.test(name));
      await until(() => here().length === 4, { what: () => `four tenants: ${here()}` });
      await kube.kubectl(['delete', 'namespace', 'gone', '--wait=false']);
      // As the controller of namespaces does, which is not here: what is named goes first.
      await kube.kubectl(['-n', 'gone', 'delete', 'secrets', '--all']);
      assert.match(await faultOf(dir, 'Tenant gone/one'), /there is no secret gone\/one/);
      assert.equal(here().length, 4);
      await kube.kubectl(['-n', 'gone', 'delete', 'tenants', '--all']);
      await until(() => here().length === 2, { what: () => `the end of two: ${here()}` });
      const namespace = { ...namespaceOf('gone'), spec: { finalizers: [] } };
      await kube.kubectl(
        ['replace', '--raw', '/api/v1/namespaces/gone/finalize', '-f', '-'],
        JSON.stringify(namespace),
      );
      await kube.apply(namespaceOf('gone'));
      await kube.apply(...(await tenantWithCa('gone', 'one')));
      await written(dir, 'gone.one.yaml');
      assert.deepEqual(here(), ['gone.one.yaml', 'stays.one.yaml', 'stays.two.yaml']);
    }),
  );

  test(
    'logs that its own files turn bad, and does not report it as what it cannot read of the API server',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('leases'), namespaceOf('files'));
      const ca = join(await tempDir(scope), 'ca.crt');
      writeFileSync(ca, await newCa());
      const flags = { 'status-namespace': 'leases', member: '127.0.0.1:1', 'member-ca-cert': ca };
      const { dir, program } = await startSync(scope, kube, flags);
      await program.waitForLog(({ msg }) => /does not say who is connected/.test(String(msg)), {
        deadline: 60_000,
        what: 'a question to the member',
      });
      writeFileSync(ca, 'x');
      const isOfFiles = ({ what }: { what?: unknown }) => what === 'the files for --member';
      await program.waitForLog(isOfFiles, { deadline: 60_000, what: 'a log line of the file' });
      const none = { secretRef: { name: 'none', key: 'ca.crt' } };
      await kube.apply(tenantOf('files', 'one', { agents: [{ certificates: { ca: none } }] }));
      await faultOf(dir, 'Tenant files/one');
      assert.deepEqual(
        faults(dir).filter(({ object }) => object === 'isthmus tenants sync'),
        [],
      );
    }),
  );

  test(
    "tells the author of an object that is too much for a file or a status what is wrong, and others' tenants go on",
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('leases'), namespaceOf('too-much'), ...(await tenantWithCa('too-much', 'good')));
      const { dir } = await startSync(scope, kube, { 'status-namespace': 'leases' });
      const ref = (name: string) => ({ secretRef: { name, key: 'k'.repeat(200) } });
      const agents = Array.from({ length: 64 }, (_, n) => {
        const [ca, crl] = [ref(`${n}-${'x'.repeat(200)}`), ref(`${n}-${'y'.repeat(200)}`)];
        return { certificates: { ca, crl } };
      });
      const longest = 'n'.repeat(250);
      const own = (await tenantWithCa('too-much', longest))[0];
      const spec = (more: object) => ({
        agents: [{ certificates: { ca: { secretRef: { name: longest, key: 'ca.crt' } } } }],
        ...more,
      });
      const key = { secretRef: { name: longest, key: 'ca.crt' } };
      const server = { certificate: key, key };
      const texts = { nul: 'a\0b', line: 'a\nagents: []', bidi: 'a\u202eb', slash: '../../a' };
      await kube.apply(
        own,
        tenantOf('too-much', 'many', { agents }),
        tenantOf('too-much', longest, spec({ tenant: 'short' })),
        ...Object.entries(texts).map(([name, text]) =>
          tenantOf('too-much', name, spec({ dial: { allow: [{ name: text, cidr: '10.0.0.0/8' }] } })),
        ),
        ...Object.entries(texts).map(([name, text]) =>
          tenantOf('too-much', `${name}-host`, spec({ server: { ...server, serverNames: [text] } })),
        ),
      );
      const accepted = async (name: string) => {
        const status = '{.status.conditions[?(@.type=="Accepted")].status}';
        return kube.kubectl(['get', '-n', 'too-much', 'tenant', name, '-o', `jsonpath=${status}`]);
      };
      for (const name of ['many', longest, ...Object.keys(texts).map((each) => `${each}-host`)])
        await until(async () => (await accepted(name)) === 'False', { what: () => `the fault of ${name}` });
      assert.equal(await accepted('good'), 'True');
      const bytes = readFileSync(join(dir, '.sync.json')).length;
      assert.ok(bytes < 64 * 1024, `a report of ${bytes} bytes`);
      for (const name of ['../x', 'a/b', '..', 'a\0b'])
        await assert.rejects(
          kube.apply(tenantOf('too-much', name, spec({}))),
          /Invalid value|invalid|the server could not find/,
        );
    }),
  );
});

/** By the program's own clock: see stepped-clock.mjs. */
const STEPPED = {
  ...AS_IN_IMAGE,
  NODE_OPTIONS: `${AS_IN_IMAGE.NODE_OPTIONS} --import ${new URL('./stepped-clock.mjs', import.meta.url)}`,
};
const HOURS = 3;
/** Tries that fail while the API server is away, an hour by the sync's clock. */
const FAILED_TRIES = 10;

describe('An API server that goes away', { skip: noApiServer }, () => {
  const LIST = /^GET \/apis\/isthmus\.dev\/v1alpha1\/tenants\?limit=(?!1$)\d+$/;
  const WATCH = /^GET \/apis\/isthmus\.dev\/v1alpha1\/tenants\?.*watch=true/;
  const TRY = /^GET \/apis\/isthmus\.dev$/;
  const limited = (tunnels: number) => JSON.stringify({ spec: { limits: { tunnels } } });

  /** Lets an hour pass for a sync, and waits until it has listed and taken in all tenants again. */
  async function anHour(door: ApiDoor, { program }: Synced): Promise<void> {
    const said = program.logs.filter(({ msg }) => / hours ahead$/.test(String(msg))).length;
    program.signal('SIGUSR2');
    await program.waitForLog(({ msg }) => msg === `${said + 1} hours ahead`, { what: 'the next hour' });
    const from = door.calls.length;
    const takenIn = () => {
      const calls = door.calls.slice(from);
      const list = calls.findIndex((call) => LIST.test(call));
      if (list < 0) door.expireWatches();
      return list >= 0 && calls.slice(list).some((call) => WATCH.test(call));
    };
    await until(takenIn, { deadline: AWAY_MS, what: 'another list, and the watch that follows it' });
  }

  test(
    'takes no tenant with it, nor does one that comes back with a snapshot of before, whose states count',
    { skip: noSnapshots },
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const door = await ApiDoor.open(scope, kube);
      await kube.apply(namespaceOf('away'));
      for (const name of ['same', 'changed', 'deleted']) await kube.apply(...(await tenantWithCa('away', name)));
      const sync = await startSync(scope, door, { grace: '0s' }, undefined, STEPPED);
      const { dir, program } = sync;
      const patch = (name: string, tunnels: number) =>
        kube.kubectl(['patch', '-n', 'away', 'tenant', name, '--type=merge', '-p', limited(tunnels)]);
      for (const name of ['same', 'changed', 'deleted']) await written(dir, `away.${name}.yaml`);
      await kube.backUp();
      await patch('changed', 7);
      await written(dir, 'away.changed.yaml', ({ limits }) => limits?.tunnels === 7);
      await kube.apply(...(await tenantWithCa('away', 'later')));
      await written(dir, 'away.later.yaml');
      await kube.kubectl(['delete', '-n', 'away', 'tenant', 'deleted']);
      const before = ['away.changed.yaml', 'away.later.yaml', 'away.same.yaml'];
      await until(() => isDeepStrictEqual(files(dir), before), { what: 'the end of a tenant that is deleted' });

      await kube.down();
      const tries = door.count(TRY);
      program.signal('SIGUSR2');
      await until(() => door.count(TRY) >= tries + FAILED_TRIES, { deadline: AWAY_MS, what: 'tries that fail' });
      assert.deepEqual(files(dir), before);

      await kube.restore();
      const restored = ['away.changed.yaml', 'away.deleted.yaml', 'away.later.yaml', 'away.same.yaml'];
      await written(dir, 'away.deleted.yaml');
      await written(dir, 'away.changed.yaml', ({ limits }) => limits === undefined);
      for (const name of ['away/changed', 'away/later'])
        await program.waitForLog(({ msg, object }) => object === name && /was restored/.test(String(msg)), {
          what: `a log line of ${name}, whose last state is gone`,
        });
      for (let hours = 0; hours < HOURS; hours++) await anHour(door, sync);
      await patch('same', 8);
      await written(dir, 'away.same.yaml', ({ limits }) => limits?.tunnels === 8);
      assert.deepEqual(files(dir), restored);
      await kube.kubectl(['delete', '-n', 'away', 'tenant', 'same']);
      await until(() => !files(dir).includes('away.same.yaml'), { what: 'the end of a tenant that is deleted' });
    }),
  );

  test(
    'takes no tenant with it, nor does one whose snapshot lacks some, comes back with versions far ahead, and has gone back in nothing else',
    { skip: noBumps },
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const door = await ApiDoor.open(scope, kube);
      await kube.apply(namespaceOf('ahead'), ...(await tenantWithCa('ahead', 'same')));
      const sync = await startSync(scope, door, { grace: '0s' }, undefined, STEPPED);
      const { dir, program } = sync;
      await written(dir, 'ahead.same.yaml');
      await kube.backUp();
      await kube.apply(...(await tenantWithCa('ahead', 'later')));
      await written(dir, 'ahead.later.yaml');
      await kube.down();
      await kube.restore('--bump-revision=1000000000', '--mark-compacted');
      await program.waitForLog(({ msg, object }) => object === 'ahead/later' && /was restored/.test(String(msg)), {
        deadline: AWAY_MS,
        what: 'a log line of the one that is gone',
      });
      for (let hours = 0; hours < HOURS; hours++) await anHour(door, sync);
      assert.deepEqual(files(dir), ['ahead.later.yaml', 'ahead.same.yaml']);
      await kube.kubectl(['delete', '-n', 'ahead', 'tenant', 'same']);
      await until(() => !files(dir).includes('ahead.same.yaml'), { what: 'the end of a tenant that is deleted' });
      await kube.apply(...(await tenantWithCa('ahead', 'next')));
      await written(dir, 'ahead.next.yaml');
    }),
  );

  test(
    'and lists nothing ends no tenant in any time; what was deleted while nobody watched ends once lists have others',
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const door = await ApiDoor.open(scope, kube);
      await kube.apply(namespaceOf('unseen'), ...(await tenantWithCa('unseen', 'only')));
      const first = await startSync(scope, door, { grace: '0s' });
      const { dir } = first;
      await written(dir, 'unseen.only.yaml');
      await first.program.kill();
      await kube.kubectl(['delete', '-n', 'unseen', 'tenant', 'only']);
      const sync = await startSync(scope, door, { grace: '0s' }, dir, STEPPED);
      for (let hours = 0; hours < HOURS; hours++) await anHour(door, sync);
      await kube.apply(...(await tenantWithCa('unseen', 'next')));
      await written(dir, 'unseen.next.yaml');
      assert.deepEqual(files(dir), ['unseen.next.yaml', 'unseen.only.yaml']);
      for (let lists = 0; lists < 2; lists++) await anHour(door, sync);
      await until(() => !files(dir).includes('unseen.only.yaml'), { what: 'the end of what two lists lack' });
      assert.deepEqual(files(dir), ['unseen.next.yaml']);
    }),
  );
});

/** How long a client may take that waits longer after each failure. */
const AWAY_MS = 90_000;

describe('A plane with a sync beside its server', { skip: noApiServer }, () => {
  test(
    "carries a tenant's dials through its own agent while its CA is rotated, and one sync writes the status",
    scoped(async (scope) => {
      const kube = await KubernetesApi.start(scope);
      const dir = await tempDir(scope);
      const trust = await newTrust(scope);
      const leads = { 'status-namespace': 'plane', member: '', 'proxy-url': 'https://gateways.example:8090' };
      await kube.apply(namespaceOf('plane'), namespaceOf('acme'), profileDefinition());
      const { program: first } = await startSync(scope, kube, leads, dir);
      const operators = await Authority.create(await tempDir(scope), 'operators');
      const admin = await operators.server({ hosts: [{ type: 'dns', value: 'isthmus-admin' }] });
      const server = await startServer(scope, trust, {
        ...{ 'uds-name': '', 'cluster-ca-cert': '', 'tenants-dir': dir, 'admin-ca-cert': operators.cert },
        ...{ 'admin-server-cert': admin.cert, 'admin-server-key': admin.key },
      });
      const operator = await operators.client('sync');
      const asOperator = {
        ...{ 'member-ca-cert': operators.cert, 'member-cert': operator.cert, 'member-key': operator.key },
      };
      const member = `127.0.0.1:${server.program.adminPort}`;
      const tenant = await TenantTrust.create(await tempDir(scope), 'acme');
      const values = (more = '') => ({
        'agents.crt': readFileSync(tenant.cluster.cert, 'utf8'),
        'callers.crt': readFileSync(tenant.callers.cert, 'utf8') + more,
        'tls.crt': readFileSync(tenant.server.cert, 'utf8'),
        'tls.key': readFileSync(tenant.server.key, 'utf8'),
      });
      const ref = (key: string) => ({ secretRef: { name: 'own', key } });
      const prod = (more: object = {}) =>
        tenantOf('acme', 'prod', {
          ...more,
          server: { serverNames: [tenant.serverName], certificate: ref('tls.crt'), key: ref('tls.key') },
          agents: [{ certificates: { ca: ref('agents.crt') } }],
          callers: [{ certificates: { ca: ref('callers.crt') } }],
        });
      await kube.apply(secretOf('acme', 'own', values()), prod());
      const { cert, key } = await tenant.agent('edge-1');
      await startAgent(scope, trust, server.agentPort, { 'agent-id': 'edge-1', 'agent-cert': cert, 'agent-key': key });
      const destination = await greeter(scope, 'hello\n');
      const { serverName, cluster } = tenant;
      const own = await tenant.caller();
      const dial = async (identity = own) => {
        const via = { port: server.mtls.port, serverName, ca: cluster.cert, identity };
        const { socket, status } = await connectThrough(scope, { via, destination: destination.authority });
        const said = status === 200 ? `${await nextChunk(socket, 'the greeting')}` : `${status}`;
        socket.destroy();
        return said;
      };
      await until(async () => (await dial().catch(() => '')) === 'hello\n', { what: 'a dial through the agent' });

      const next = await TenantTrust.create(await tempDir(scope), 'acme');
      const nextCaller = await next.caller();
      assert.notEqual(await dial(nextCaller).catch(() => 'refused'), 'hello\n');
      await kube.apply(secretOf('acme', 'own', values(readFileSync(next.callers.cert, 'utf8'))));
      let failed = 0;
      await until(
        async () => {
          if ((await dial()) !== 'hello\n') failed++;
          return (await dial(nextCaller).catch(() => '')) === 'hello\n';
        },
        { deadline: ROTATED_MS, what: 'a dial by a certificate of the new CA' },
      );
      for (let dials = 0; dials < 20; dials++) if ((await dial()) !== 'hello\n') failed++;
      assert.equal(failed, 0);

      const columns = async () => (await kube.kubectl(['get', '-n', 'acme', 'tenant', 'prod', '--no-headers'])).trim();
      await until(async () => /^prod +True/.test(await columns()), { what: 'its columns' });
      const holder = () =>
        kube.kubectl([
          'get',
          '-n',
          'plane',
          'lease',
          'isthmus-tenants-sync-isthmus',
          '-o',
          'jsonpath={.spec.holderIdentity}',
        ]);
      await kube.apply(prod({ clusterProfile: true }));
      const profile = () =>
        kube.kubectl(['get', '-n', 'acme', 'clusterprofile', 'prod', '-o', 'json']).catch(() => '{}');
      const access = await until(
        async () =>
          JSON.parse(await profile()).status?.accessProviders?.find(({ name }: Named) => name === 'isthmus')?.cluster,
        { deadline: 60_000, what: 'the ClusterProfile' },
      );
      assert.equal(access.server, 'https://kubernetes.default.svc');
      assert.equal(access['proxy-url'], `https://${serverName}:8090`);
      const bundle = Buffer.from(access['certificate-authority-data'], 'base64').toString();
      const [old, fresh] = [tenant, next].map(({ callers }) => readFileSync(callers.cert, 'utf8'));
      assert.equal(bundle.trim(), `${old}${fresh}`.trim());
      const { proxySecret } = access.extensions[0].extension;
      const { data } = JSON.parse(await kube.kubectl(['get', '-n', 'acme', 'secret', proxySecret, '-o', 'json']));
      const proxy = new URL(Buffer.from(data['proxy-url'], 'base64').toString());
      assert.equal(proxy.password, Buffer.from(data.token, 'base64').toString());
      const basic = Buffer.from(`${proxy.username}:${proxy.password}`).toString('base64');
      const byToken = async () => {
        const { socket, status, body } = await connectThrough(scope, {
          via: { port: server.mtls.port, serverName, ca: tenant.cluster.cert },
          destination: destination.authority,
          headers: [`Proxy-Authorization: Basic ${basic}`],
        });
        socket.destroy();
        return `${status} ${body}`;
      };
      let said = '';
      const answers = async (wanted: string) => {
        said = await byToken().catch(String);
        return said.startsWith(wanted);
      };
      await until(() => answers('200'), { what: () => `a dial by the token of the secret: ${said}` });
      await kube.apply(prod());
      await until(() => answers('407'), { what: () => `the end of that token: ${said}` });

      const leader = await holder();
      await startSync(scope, kube, { ...leads, ...asOperator, member });
      assert.equal(await holder(), leader);
      await first.kill();
      // agents, sessions, callers
      await until(async () => /^prod +True +Tenant +1 +1 +2 /.test(await columns()), {
        deadline: 60_000,
        what: 'its columns',
      });
      assert.notEqual(await holder(), leader);
      const messages = ['get', '-n', 'acme', 'tenant', 'prod', '-o', 'jsonpath={.status.conditions[*].message}'];
      // Without what was said of its ClusterProfile.
      await until(
        async () => {
          said = await kube.kubectl(messages);
          return said === 'The spec is in force 1 agents with 1 sessions at 1 hubs';
        },
        { deadline: 60_000, what: () => `its conditions: ${said}` },
      );

      // What only the member can know, whose directory has a sync again.
      await startSync(scope, kube, {}, dir);
      const ca = { secretRef: { name: 'taken', key: 'ca.crt' } };
      const withPort = (port: number) => tenantWithCa('acme', 'taken', { agents: [{ certificates: { ca }, port }] });
      const reads = async (wanted: RegExp) => {
        const accepted = '{.status.conditions[?(@.type=="Accepted")]}';
        const condition = ['get', '-n', 'acme', 'tenant', 'taken', '-o', `jsonpath=${accepted}`];
        await until(
          async () => {
            said = await kube.kubectl(condition);
            return wanted.test(said);
          },
          { deadline: 90_000, what: () => `${wanted} in ${said}` },
        );
      };
      await kube.apply(...(await withPort(server.agentPort)));
      await reads(
        /acme\.taken\.yaml: agents\[0\]\.port: agents of tenant acme-taken cannot connect to its port \d+: .* \(at .*"False"/,
      );
      await kube.apply(...(await withPort(await freePort())));
      await reads(/The spec is in force.*"True"/);
    }),
  );
});

interface Named {
  readonly name: string;
}

/** How long a rotated secret may take until it is in force at members. */
const ROTATED_MS = 10_000;

const MANY = 1000;
const DAY_MS = 86_400_000;
/** What a sync may have resident with so many. */
const MOST_MIB = 120;
/** How long requests are counted: the leader asks its member, and looks for what to write, more than once in it. */
const REST_MS = 25_000;

/** How many requests the API server has had. */
async function requestsTo(kube: KubernetesApi): Promise<number> {
  const metrics = await kube.kubectl(['get', '--raw=/metrics']);
  const counts = [...metrics.matchAll(/^apiserver_request_total\{[^}]*\} (\S+)$/gm)].map(([, count]) => Number(count));
  return counts.reduce((sum, count) => sum + count, 0);
}

describe('A thousand tenants', { skip: noApiServer }, () => {
  test(
    'are in force within a minute of their creation, in a sync of at most 120 MiB',
    scoped(async (scope, context) => {
      const kube = await KubernetesApi.start(scope);
      const { dir, program } = await startSync(scope, kube);
      await kube.apply(...Array.from({ length: 10 }, (_, index) => namespaceOf(`many-${index}`)));
      const closing = { defer: (close: () => void) => scope.defer(close) };
      const member = await startAdmission({
        ...{ dir, closing, events: planeEvents(), rememberMs: 0, tokensOf: [] },
        bundles: { agent: '', caller: '' },
      });
      const objects: object[] = [];
      const servers = await CertificateAuthority.create('servers', DAY_MS);
      for (let index = 0; index < MANY; index++) {
        const name = `t-${index}`;
        const { cert, key } = await servers.issue({
          commonName: name,
          validMs: DAY_MS,
          hosts: LOOPBACK,
          uses: ['server'],
        });
        const ref = (of: string) => ({ secretRef: { name, key: of } });
        const namespace = `many-${index % 10}`;
        objects.push(
          secretOf(namespace, name, { 'ca.crt': await newCa(), 'tls.crt': cert, 'tls.key': key }),
          tenantOf(namespace, name, {
            server: { serverNames: [`${name}.plane.example`], certificate: ref('tls.crt'), key: ref('tls.key') },
            agents: [{ certificates: { ca: ref('ca.crt') } }],
          }),
        );
      }
      const start = performance.now();
      for (let from = 0; from < objects.length; from += 200) await kube.apply(...objects.slice(from, from + 200));
      const applied = performance.now();
      await until(() => member.tenants.size === MANY, {
        deadline: 60_000,
        what: () => `${MANY} tenants, of which ${member.tenants.size} are in force`,
      });
      const inForce = performance.now();
      const isSmall = ({ pid }: Program) => {
        const mib = residentBytes(pid) / 2 ** 20;
        if (!unlessBundled()) assert.ok(mib <= MOST_MIB, `${mib} MiB`);
        return `${mib.toFixed(0)} MiB`;
      };
      context.diagnostic(
        `applied in ${((applied - start) / 1000).toFixed(1)} s, in force ${((inForce - applied) / 1000).toFixed(1)} s later; ${isSmall(program)}`,
      );
      await program.kill();
      await kube.apply(namespaceOf('plane'));
      const again = performance.now();
      const next = await startSync(scope, kube, { 'status-namespace': 'plane' });
      await until(() => files(next.dir).length === MANY, {
        deadline: 60_000,
        what: () => `${files(next.dir).length} written`,
      });
      context.diagnostic(
        `a start with them takes ${((performance.now() - again) / 1000).toFixed(1)} s; ${isSmall(next.program)}`,
      );
      const reasons = ['get', 'tenants', '-A', '-o', 'jsonpath={.items[*].status.conditions[0].reason}'];
      const inForceIn = async () =>
        (await kube.kubectl(reasons)).split(' ').filter((each) => each === 'InForce').length;
      let said = 0;
      await until(
        async () => {
          said = await inForceIn();
          return said === MANY;
        },
        { deadline: 180_000, what: () => `the status of ${MANY} tenants, of which ${said} have one` },
      );
      const before = await requestsTo(kube);
      const from = performance.now();
      await until(() => performance.now() - from >= REST_MS, { deadline: 2 * REST_MS, what: 'a while at rest' });
      const perSecond = ((await requestsTo(kube)) - before) / ((performance.now() - from) / 1000);
      context.diagnostic(
        `${perSecond.toFixed(1)} requests a second at rest, with those of the API server to itself; ${isSmall(next.program)}`,
      );
      assert.ok(perSecond < 5, `${perSecond} requests a second`);
    }),
  );
});
