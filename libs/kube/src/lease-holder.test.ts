import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { type KubeClient, kubeClient } from './client.ts';
import { KUBE } from './defaults.ts';
import { type Lease, type LeaseCall, microTime } from './lease.ts';
import { type LeaseHolderOptions, leaseHolder } from './lease-holder.ts';
import { FakeApiServer, failure } from './testing/api-server.ts';

describe('lease holder', () => {
  const PATH = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';
  const OWN = 'konnectivity-proxy-server-one';
  const LABELS = { 'k8s-app': 'konnectivity-server' };

  let api: FakeApiServer;
  let client: KubeClient;

  beforeEach(async () => {
    api = await FakeApiServer.start();
    client = await kubeClient({ source: async () => api.connection, qps: -1 });
  });
  afterEach(async () => {
    client[Symbol.dispose]();
    await api[Symbol.asyncDispose]();
  });

  const quiet = { listed() {}, deleted() {}, culled() {} };

  function hold(options: Partial<LeaseHolderOptions> = {}) {
    const warn = (message: string) => assert.fail(message);
    return leaseHolder({
      client,
      serverId: 'one',
      namespace: 'kube-system',
      labels: LABELS,
      observer: quiet,
      warn,
      ...options,
    });
  }

  function calls(prefix: string): number {
    return api.calls.filter((call) => call.startsWith(prefix)).length;
  }

  /** A lease that nobody renews. */
  function expiring(name: string, labels: Readonly<Record<string, string>> = LABELS, aheadMs = 0): Lease {
    const renewTime = microTime(Date.now() + aheadMs);
    return { metadata: { name, labels }, spec: { holderIdentity: name, leaseDurationSeconds: 1, renewTime } };
  }

  describe("a server's lease", () => {
    it('is created with the fields that agents look for, and deleted at the end', async () => {
      const before = Date.now();
      const holder = hold();
      await until(() => api.leases.has(OWN));
      const { metadata, spec } = api.leases.get(OWN) as Lease;
      assert.equal(metadata.name, OWN);
      assert.equal(metadata.namespace, 'kube-system');
      assert.deepEqual(metadata.labels, LABELS);
      const { renewTime = '', ...who } = spec ?? {};
      assert.deepEqual(who, { holderIdentity: 'one', leaseDurationSeconds: 30 });
      assert.match(renewTime, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}000Z$/);
      const renewedAt = Date.parse(renewTime);
      assert.ok(before <= renewedAt && renewedAt <= Date.now(), renewTime);
      await Promise.all([holder[Symbol.asyncDispose](), holder[Symbol.asyncDispose]()]);
      assert.equal(api.leases.has(OWN), false);
      assert.equal(calls('DELETE'), 1);
    });

    it('is renewed repeatedly without being read', async () => {
      using _times = changed(KUBE, { leaseRenewMs: 5 });
      await using _holder = hold();
      await until(() => calls('PUT') >= 3);
      assert.equal(calls(`GET ${PATH}/`), 1);
      assert.equal(calls('POST'), 1);
    });

    it('is taken over from an earlier process, and keeps what others wrote into it', async () => {
      const annotations = { note: 'kept' };
      api.put({ ...expiring(OWN), metadata: { ...expiring(OWN).metadata, annotations } } as Lease);
      await using _holder = hold();
      await until(() => calls('PUT') === 1);
      const { metadata } = api.leases.get(OWN) as { metadata: { annotations?: unknown } };
      assert.deepEqual(metadata.annotations, annotations);
      assert.equal(calls('POST'), 0);
    });

    it('survives writes and deletion by others', async () => {
      using _times = changed(KUBE, { leaseRenewMs: 5 });
      await using _holder = hold();
      await until(() => calls('PUT') >= 1);
      api.put(api.leases.get(OWN) as Lease);
      const before = calls('PUT');
      await until(() => calls('PUT') > before + 2);
      api.remove(OWN);
      await until(() => api.leases.has(OWN) && calls('POST') === 2);
    });

    it('is soon retried when the API server fails, with a warning', async () => {
      const warnings: string[] = [];
      let failures = 1;
      api.intercept = (request, response) => {
        if (request.method !== 'POST' || failures-- <= 0) return false;
        failure(response, 403, 'Forbidden');
        return true;
      };
      await using _holder = hold({ warn: (message) => warnings.push(message) });
      await until(() => api.leases.has(OWN));
      assert.equal(warnings.length, 1);
      assert.match(
        warnings[0] ?? '',
        /lease kube-system\/konnectivity-proxy-server-one could not be renewed: POST .*Forbidden/,
      );
    });
  });

  describe('the collection of leases', () => {
    it('deletes expired leases that match, and reports them to the metrics', async () => {
      api.put(expiring('old'));
      api.put(expiring('foreign', { app: 'other' }));
      const told: [string, LeaseCall?][] = [];
      const observer = {
        listed: (call: LeaseCall) => told.push(['listed', call]),
        deleted: (call: LeaseCall) => told.push(['deleted', call]),
        culled: () => told.push(['culled']),
      };
      using _times = changed(KUBE, { leaseRenewMs: 200 });
      await using _holder = hold({ observer });
      await until(() => !api.leases.has('old') && api.leases.has(OWN));
      const deletions = () => told.filter(([name]) => name !== 'listed');
      await until(() => deletions().length === 2);
      assert.equal(api.leases.has('foreign'), true);
      assert.equal(told[0]?.[0], 'listed');
      assert.deepEqual(
        deletions().map(([name]) => name),
        ['deleted', 'culled'],
      );
      assert.deepEqual({ ...deletions()[0]?.[1], ms: 0 }, { status: 200, reason: '', ms: 0 });
    });

    it('keeps leases that are renewed, and deletes others, whatever their clocks say', async () => {
      // By this machine's clock, the first has expired a minute ago, and the second expires in a minute.
      const renew = () => api.put(expiring('behind', LABELS, -60_000));
      renew();
      api.put(expiring('ahead', LABELS, 60_000));
      const timer = setInterval(renew, 100);
      try {
        using _times = changed(KUBE, { leaseRenewMs: 50 });
        await using _holder = hold();
        await until(() => !api.leases.has('ahead'));
        assert.ok(api.leases.has('behind'));
      } finally {
        clearInterval(timer);
      }
    });

    it('keeps a lease that was renewed in between', async () => {
      api.put(expiring('late'));
      const told: LeaseCall[] = [];
      api.intercept = (request) => {
        if (request.method === 'DELETE' && request.url?.endsWith('/late')) api.put(api.leases.get('late') as Lease);
        return false;
      };
      using _times = changed(KUBE, { leaseRenewMs: 200 });
      await using _holder = hold({
        observer: { ...quiet, deleted: (call) => told.push(call), culled: () => assert.fail() },
      });
      await until(() => told.length > 0);
      assert.equal(told[0]?.status, 409);
      assert.equal(told[0]?.reason, 'Conflict');
      assert.equal(api.leases.has('late'), true);
    });

    it('continues after a failed list', async () => {
      const warnings: string[] = [];
      let failures = 1;
      api.put(expiring('old'));
      api.intercept = (request, response) => {
        if (!request.url?.includes('labelSelector') || failures-- <= 0) return false;
        failure(response, 401, 'Unauthorized');
        return true;
      };
      using _times = changed(KUBE, { leaseRenewMs: 5 });
      await using _holder = hold({ warn: (message) => warnings.push(message) });
      await until(() => !api.leases.has('old'));
      assert.match(warnings.join(), /expired leases could not be collected: GET .*401/);
    });
  });
});
