import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { type KubeClient, kubeClient } from './client.ts';
import { type Lease, microTime } from './lease.ts';
import { LeaseCounter, type LeaseCounterOptions } from './lease-counter.ts';
import { FakeApiServer, failure } from './testing/api-server.ts';

describe('lease counter', () => {
  const LABELS = { 'k8s-app': 'konnectivity-server' };

  let api: FakeApiServer;
  let client: KubeClient;

  beforeEach(async () => {
    api = await FakeApiServer.start();
    client = await kubeClient({ source: async () => api.connection, qps: -1 });
    watches = 0;
  });
  afterEach(async () => {
    client[Symbol.dispose]();
    await api[Symbol.asyncDispose]();
  });

  /** Number of watches that this test's counter opened. */
  let watches: number;
  const watching = {
    listed() {},
    watched() {
      watches++;
    },
  };

  function counter(options: Partial<LeaseCounterOptions> = {}): LeaseCounter {
    const warn = (message: string) => assert.fail(message);
    const selector = 'k8s-app=konnectivity-server';
    return new LeaseCounter({ client, namespace: 'kube-system', selector, observer: watching, warn, ...options });
  }

  function lease(name: string, ageMs = 0): Lease {
    const renewTime = microTime(Date.now() - ageMs);
    return { metadata: { name, labels: LABELS }, spec: { leaseDurationSeconds: 30, renewTime } };
  }

  describe('the count of servers', () => {
    it('is 1 before anything is known, and while there is no lease', async () => {
      await using servers = counter();
      assert.equal(servers.count(), 1);
      await until(() => watches === 1);
      assert.equal(servers.count(), 1);
    });

    it('is that of the valid leases, and changes as they are created, deleted or expire', async () => {
      api.put(lease('a'));
      api.put(lease('b'));
      api.put(lease('dead', 31_000));
      let now = Date.now();
      await using servers = counter({ now: () => now });
      await until(() => servers.count() === 2 && watches === 1);
      api.put(lease('c'));
      await until(() => servers.count() === 3);
      api.remove('a');
      await until(() => servers.count() === 2);
      now += 31_000;
      assert.equal(servers.count(), 1);
    });

    it('is that of the servers that are seen to renew, if this machine or theirs has another clock', async () => {
      for (const name of ['a', 'b', 'c']) api.put(lease(name, 60_000));
      let now = 0;
      await using servers = counter({ now: () => now });
      await until(() => servers.count() === 3 && watches === 1);
      for (let renewals = 0; renewals < 3; renewals++) {
        now += 20_000;
        for (const name of ['a', 'b']) api.put(lease(name, 45_000 - 15_000 * renewals));
        const expected = renewals === 0 ? 3 : 2;
        await until(() => servers.count() === expected, `${expected} servers`);
      }
    });

    it('is read again when its version is too old', async () => {
      await using servers = counter({ warn: () => {} });
      await until(() => watches === 1);
      api.leases.set('silent', lease('silent'));
      api.leases.set('other', lease('other'));
      api.expire();
      await until(() => servers.count() === 2);
    });

    it('has those that were deleted and created again before it is read again', async () => {
      await using servers = counter({ warn: () => {} });
      await until(() => watches === 1);
      for (const name of ['a', 'b']) api.put(lease(name));
      await until(() => servers.count() === 2);
      api.intercept = ({ url = '' }) => {
        if (!url.includes('watch')) api.remove('b');
        if (!url.includes('watch')) for (const name of ['b', 'c']) api.put(lease(name));
        return false;
      };
      api.cutWatches();
      await until(() => watches === 2);
      api.put(lease('d'));
      await until(() => servers.count() === 4);
    });

    it('stays the same while the API server is down', async () => {
      api.put(lease('a'));
      api.put(lease('b'));
      const warnings: string[] = [];
      let now = Date.now();
      await using servers = counter({ now: () => now, warn: (message) => warnings.push(message) });
      await until(() => servers.count() === 2 && watches === 1);
      api.intercept = (_request, response) => failure(response, 503, 'ServiceUnavailable') === undefined;
      api.expire();
      await until(() => warnings.length > 1);
      now += 60_000;
      assert.equal(servers.count(), 2);
      assert.match(warnings.at(-1) ?? '', /cannot watch server leases, still counting 2 server\(s\): GET .*503/);
    });

    it('comes with metrics of lists and watches, including failures', async () => {
      const told: string[] = [];
      let failures = 1;
      api.intercept = (request, response) => {
        if (!request.url?.includes('watch=') || failures-- <= 0) return false;
        failure(response, 403, 'Forbidden');
        return true;
      };
      const observer: LeaseCounterOptions['observer'] = {
        listed: ({ status, reason }) => told.push(`list ${status} ${reason}`),
        watched: ({ status, reason }) => told.push(`watch ${status} ${reason}`),
      };
      await using _servers = counter({ observer, warn: () => {} });
      await until(() => told.length === 4);
      assert.deepEqual(told, ['list 200 ', 'watch 403 Forbidden', 'list 200 ', 'watch 200 ']);
    });

    it('can be closed in the middle of a watch, leaving nothing behind', async () => {
      const servers = counter();
      await until(() => watches === 1);
      await Promise.all([servers[Symbol.asyncDispose](), servers[Symbol.asyncDispose]()]);
    });
  });
});
