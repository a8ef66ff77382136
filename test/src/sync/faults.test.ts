import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { scoped, sharedByFile, times, until } from '../harness/index.ts';
import { ApiDoor } from './api-door.ts';
import { KubernetesApi, noApiServer } from './kubernetes-api.ts';
import { namespaceOf, tenantWithCa } from './objects.ts';
import { faultOf, faults, files, startSync, written } from './synced.ts';

const api = sharedByFile((scope) => KubernetesApi.start(scope));

/** The first page of tenants of all namespaces. */
const LIST = /^GET \/apis\/isthmus\.dev\/v1alpha1\/tenants\?limit=(?!1$)\d+$/;
const NEXT_PAGE = /^GET \/apis\/isthmus\.dev\/v1alpha1\/tenants\?.*continue=/;
const TENANTS = /^GET \/apis\/isthmus\.dev\/v1alpha1\/(namespaces\/\w+\/)?tenants\?/;
const STATUS = /^PATCH \/apis\/isthmus\.dev\/v1alpha1\/namespaces\/\w+\/tenants\/[\w-]+\/status/;
const WAIT_MS = 90_000;
const ROUND_MS = 10_000;

describe('A sync whose API server answers otherwise', { skip: noApiServer }, () => {
  test(
    'ends no tenant, and follows what changes',
    scoped(async (scope, context) => {
      const kube = await api();
      const names = ['one', 'two', 'three'];
      await kube.apply(namespaceOf('lists'));
      for (const name of names) await kube.apply(...(await tenantWithCa('lists', name)));
      const door = await ApiDoor.open(scope, kube);
      door.asks = (query) => query.set('limit', '1');
      const { dir } = await startSync(scope, door, { grace: '0s' });
      const all = names.map((name) => `lists.${name}.yaml`).sort();
      for (const name of all) await written(dir, name);
      assert.ok(door.count(NEXT_PAGE) >= 2, door.calls.join('\n'));
      let tunnels = 0;
      /** Waits until a change is in force that was made now. */
      const follows = async () => {
        const spec = { limits: { tunnels: ++tunnels } };
        await kube.kubectl(['patch', '-n', 'lists', 'tenant', 'one', '--type=merge', '-p', JSON.stringify({ spec })]);
        await written(dir, 'lists.one.yaml', ({ limits }) => limits?.tunnels === tunnels);
        assert.deepEqual(files(dir), all);
      };
      const listedAgain = async () => {
        const before = door.count(LIST);
        door.expireWatches();
        await until(() => door.count(LIST) > before, { deadline: WAIT_MS, what: 'another list' });
      };
      const answering = { refuses: door.refuses, lists: door.lists, passes: door.passes };
      let expired = 0;
      const harms: Readonly<Record<string, () => Promise<void>>> = {
        async 'forgets a page in the middle of a list'() {
          door.refuses = (call) => (NEXT_PAGE.test(call) && ++expired === 1 ? 410 : undefined);
          const before = door.count(NEXT_PAGE);
          await listedAgain();
          await until(() => door.count(NEXT_PAGE) >= before + 3, { deadline: WAIT_MS, what: 'a whole list' });
          assert.ok(expired > 1);
        },
        async 'lists nothing'() {
          door.lists = (list) => {
            list.items = [];
            list.metadata = { ...list.metadata, continue: '' };
          };
          await listedAgain();
        },
        async 'lists too little'() {
          door.lists = (list) => {
            list.metadata = { ...list.metadata, continue: '' };
          };
          await listedAgain();
        },
        async 'forbids to list and to watch'() {
          door.refuses = (call) => (TENANTS.test(call) ? 403 : undefined);
          door.endWatches();
          assert.match(await faultOf(dir, 'isthmus tenants sync'), /it cannot read tenants, .*Forbidden/);
          door.refuses = answering.refuses;
          await until(() => faults(dir).length === 0, { deadline: WAIT_MS, what: 'the end of the fault' });
        },
        async 'drains: watches end'() {
          door.endWatches();
        },
        async 'sends no bookmarks'() {
          door.passes = (type) => type !== 'BOOKMARK';
          door.endWatches();
        },
        async 'keeps silent until its watches end'() {
          door.passes = () => false;
          const spec = { limits: { tunnels: ++tunnels } };
          const seen = written(dir, 'lists.two.yaml', ({ limits }) => limits?.tunnels === tunnels);
          await kube.kubectl(['patch', '-n', 'lists', 'tenant', 'two', '--type=merge', '-p', JSON.stringify({ spec })]);
          Object.assign(door, answering);
          door.endWatches();
          await seen;
        },
      };
      for (const [what, harm] of Object.entries(harms)) {
        await harm();
        await follows();
        Object.assign(door, answering);
        context.diagnostic(`${what}: ${files(dir).length} tenants stay`);
      }
      await kube.kubectl(['delete', '-n', 'lists', 'tenant', 'two']);
      await until(() => files(dir).length === 2, { what: 'the end of a tenant that is deleted' });
    }),
  );

  test(
    'says so while it may not read its namespace, and keeps what it has once it may no longer',
    scoped(async (scope) => {
      const kube = await api();
      await kube.apply(namespaceOf('narrow'), ...(await tenantWithCa('narrow', 'one')));
      await kube.kubectl(['create', 'serviceaccount', 'sync', '-n', 'narrow']);
      const token = (await kube.kubectl(['create', 'token', 'sync', '-n', 'narrow'])).trim();
      const door = await ApiDoor.open(scope, kube, token);
      const { dir, program } = await startSync(scope, door, { namespace: 'narrow', grace: '0s' });
      await program.waitForLog(({ msg }) => /cannot be read, .*status 403 Forbidden/.test(String(msg)), {
        what: 'a log line of a kind that may not be read',
      });
      assert.deepEqual(files(dir), []);
      const grant = async () => {
        const resources = ['--resource=tenants.isthmus.dev,secrets,configmaps', '--verb=get,list,watch'];
        await kube.kubectl(['create', 'role', 'sync', '-n', 'narrow', ...resources]);
        const whom = ['--role=sync', '--serviceaccount=narrow:sync'];
        await kube.kubectl(['create', 'rolebinding', 'sync', '-n', 'narrow', ...whom]);
      };
      await grant();
      await written(dir, 'narrow.one.yaml');
      await kube.kubectl(['delete', '-n', 'narrow', 'rolebinding/sync', 'role/sync']);
      door.endWatches();
      assert.match(await faultOf(dir, 'isthmus tenants sync'), /it cannot read .*Forbidden/);
      assert.deepEqual(files(dir), ['narrow.one.yaml']);
      await grant();
      await until(() => faults(dir).length === 0, { deadline: WAIT_MS, what: 'the end of the fault' });
      await kube.apply(...(await tenantWithCa('narrow', 'two')));
      await written(dir, 'narrow.two.yaml');
    }),
  );
});

describe('Two syncs of a plane', { skip: noApiServer }, () => {
  test(
    'have one that writes statuses, also when it was frozen while it wrote, and write each at most once in 10 s',
    scoped(async (scope, context) => {
      const kube = await api();
      const [namespace, count] = ['frozen', 20];
      await kube.apply(namespaceOf(namespace), namespaceOf('leases'));
      const objects = await times(count, (index) => tenantWithCa(namespace, `t-${index}`));
      await kube.apply(...objects.flat());
      const [first, second] = [await ApiDoor.open(scope, kube), await ApiDoor.open(scope, kube)];
      const flags = { namespace, 'status-namespace': 'leases', grace: '0s' };
      const { program } = await startSync(scope, first, flags);
      /** How many objects have a status of their newest state. */
      const told = async () => {
        const { items } = JSON.parse(await kube.kubectl(['get', 'tenants', '-n', namespace, '-o', 'json'])) as {
          items: { metadata: { generation: number }; status?: { observedGeneration: number } }[];
        };
        return items.filter(({ metadata, status }) => status?.observedGeneration === metadata.generation).length;
      };
      const allTold = () =>
        until(async () => (await told()) === count, { deadline: WAIT_MS, every: 500, what: 'the status of all' });
      await allTold();
      await startSync(scope, second, flags);
      assert.equal(second.count(STATUS), 0);

      const held = Promise.withResolvers<void>();
      first.holds = (call) => (STATUS.test(call) ? held.promise : undefined);
      const before = first.count(STATUS);
      const limited = (tunnels: number) =>
        objects.map(([, tenant]) => {
          const { spec, ...rest } = tenant as { spec: object };
          return { ...rest, spec: { ...spec, limits: { tunnels } } };
        });
      await kube.apply(...limited(5));
      await until(() => first.count(STATUS) > before, { deadline: WAIT_MS, what: 'a write of the first' });
      program.signal('SIGSTOP');
      await allTold();
      assert.ok(second.count(STATUS) >= count);
      await kube.apply(...limited(6));
      await allTold();
      const frozen = first.count(STATUS);
      const answered = first.answers.length;
      held.resolve();
      const late = () => first.answers.slice(answered).filter((answer) => / PATCH .*\/status/.test(answer));
      await until(() => late().length === frozen - before, { what: () => `answers to what was on its way: ${late()}` });
      assert.deepEqual(
        late().filter((answer) => !answer.startsWith('409 ')),
        [],
      );
      assert.equal(await told(), count);
      program.signal('SIGCONT');
      const LEASE = /^GET \/apis\/coordination\.k8s\.io\/.*\/leases\//;
      const looks = first.count(LEASE);
      await until(() => first.count(LEASE) >= looks + 2, { deadline: WAIT_MS, what: 'two looks at the lease' });
      assert.equal(first.count(STATUS) - frozen, 0, 'writes of the one that no longer leads');

      const of = new RegExp(`${STATUS.source.replace('[\\w-]+', 't-0')}`);
      const [from, start] = [second.count(of), performance.now()];
      for (let tunnels = 10; tunnels < 25; tunnels++) {
        const patch = JSON.stringify({ spec: { limits: { tunnels } } });
        await kube.kubectl(['patch', '-n', namespace, 'tenant', 't-0', '--type=merge', '-p', patch]);
      }
      await allTold();
      const [wrote, took] = [second.count(of) - from, performance.now() - start];
      context.diagnostic(`15 changes in ${(took / 1000).toFixed(1)} s: ${wrote} writes of the status`);
      assert.ok(wrote <= took / ROUND_MS + 1, `${wrote} writes in ${took} ms`);
      const RENEWAL = /^PUT \/apis\/coordination\.k8s\.io\//;
      const [writes, renewals] = [second.count(STATUS), second.count(RENEWAL)];
      await until(() => second.count(RENEWAL) >= renewals + 5, {
        deadline: WAIT_MS,
        what: 'five renewals of its lease',
      });
      assert.equal(second.count(STATUS), writes, 'nothing has changed');
    }),
  );
});
