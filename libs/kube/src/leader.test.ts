import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { until } from '@isthmus/runtime/testing';
import { type KubeClient, kubeClient } from './client.ts';
import { KUBE } from './defaults.ts';
import { type Leader, leaderLease } from './leader.ts';
import { FakeApiServer } from './testing/api-server.ts';

describe('a lease that one process holds', () => {
  let api: FakeApiServer;
  let client: KubeClient;

  beforeEach(async () => {
    api = await FakeApiServer.start();
    client = await kubeClient({ source: async () => api.connection, qps: -1 });
    mock.property(KUBE, 'leaderRenewMs', 20);
  });
  afterEach(async () => {
    mock.restoreAll();
    client[Symbol.dispose]();
    await api[Symbol.asyncDispose]();
  });

  const candidate = (identity: string): Leader =>
    leaderLease({ client, identity, namespace: 'plane', name: 'sync', failed: (error) => assert.fail(error) });
  const holder = () => api.leases.get('sync')?.spec?.holderIdentity;

  it('goes to the next when its holder gives it up', async () => {
    const first = candidate('one');
    await until(() => first.leads);
    await using second = candidate('two');
    await until(() => api.calls.filter((call) => call.startsWith('GET')).length >= 3);
    assert.deepEqual([first.leads, second.leads, holder()], [true, false, 'one']);
    await first[Symbol.asyncDispose]();
    await until(() => second.leads);
    assert.deepEqual([first.leads, holder()], [false, 'two']);
  });

  it('goes to the next when its holder no longer renews it', async () => {
    mock.property(KUBE, 'leaderSeconds', 1);
    api.put({
      metadata: { name: 'sync', namespace: 'plane' },
      spec: { holderIdentity: 'dead', leaseDurationSeconds: 1, renewTime: '2026-01-01T00:00:00.000000Z' },
    });
    await using next = candidate('two');
    await until(() => next.leads);
    assert.equal(holder(), 'two');
  });
});
