import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { after, afterEach, before, describe, it } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { TokenBucket } from '@isthmus/tunnel';
import { type KubeClientOptions, KubeStatusError, kubeClient, reserve } from './client.ts';
import type { KubeConnection } from './connection.ts';
import { KUBE } from './defaults.ts';
import { FakeApiServer, failure } from './testing/api-server.ts';

describe('client', () => {
  const LEASES = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';
  const LIST = { method: 'GET', path: LEASES, query: { labelSelector: 'app=a' } } as const;

  let api: FakeApiServer;

  before(async () => {
    api = await FakeApiServer.start();
  });
  after(() => api[Symbol.asyncDispose]());
  afterEach(() => {
    api.intercept = () => false;
    api.token = 'secret';
    api.seen.length = 0;
  });

  function client(options: Partial<KubeClientOptions> = {}, connection: Partial<KubeConnection> = {}) {
    return kubeClient({
      source: async () => ({ ...api.connection, ...connection }),
      qps: -1,
      timeoutMs: 60_000,
      ...options,
    });
  }

  /** Lets `fate` handle the first `count` requests. The server answers the rest. */
  function firstRequests(count: number, fate: FakeApiServer['intercept']): void {
    let left = count;
    api.intercept = (request, response) => left-- > 0 && fate(request, response);
  }

  describe('a Kubernetes client', () => {
    it('logs in with a token', async () => {
      using kube = await client();
      assert.deepEqual(await kube.request(LIST), { metadata: { resourceVersion: '100' }, items: [] });
    });

    it('logs in with a client certificate', async () => {
      using kube = await client({}, { token: 'wrong', ...api.client });
      await kube.request(LIST);
      assert.equal(api.seen.length, 1);
    });

    it('reports a refused login without a retry, with status and reason', async () => {
      using kube = await client({}, { token: 'wrong' });
      await assert.rejects(kube.request(LIST), (error) => {
        assert.ok(error instanceof KubeStatusError);
        assert.equal(error.status, 401);
        assert.equal(error.reason, 'Unauthorized');
        assert.match(
          error.message,
          /^GET \/apis.*leases at 127\.0\.0\.1:\d+: status 401 Unauthorized Unauthorized said/,
        );
        return true;
      });
      assert.equal(api.seen.length, 1);
    });

    it('rejects a server of another authority', async () => {
      using kube = await client({ timeoutMs: 60_000 }, { ca: api.client.cert });
      await assert.rejects(
        kube.request(LIST),
        /is refused: it was issued by CN=api-server, which is not a trusted authority here/,
      );
      assert.equal(api.seen.length, 0);
    });

    it('gives up at its deadline if a server does not answer', async (t) => {
      const asked = Promise.withResolvers<void>();
      api.intercept = () => {
        asked.resolve();
        return true;
      };
      using kube = await client({ timeoutMs: 1000 });
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const late = assert.rejects(kube.request(LIST), /no answer within 1000 ms/);
      await asked.promise;
      t.mock.timers.tick(1000);
      await late;
      t.mock.timers.reset();
      assert.equal(api.seen.length, 1);
    });

    it('gives up at its deadline if an answer does not end', async () => {
      api.intercept = (_request, response) => response.writeHead(200).write('{');
      using kube = await client({ timeoutMs: 50 });
      await assert.rejects(kube.request(LIST), /no answer within 50 ms/);
    });

    it('retries when connections drop before or within the answer', async () => {
      firstRequests(2, (request, response) => {
        if (api.seen.length === 1) request.socket.destroy();
        else response.writeHead(200, { 'content-length': '100' }).write('{', () => request.socket.destroy());
        return true;
      });
      using kube = await client();
      await kube.request(LIST);
      assert.equal(api.seen.length, 3);
    });

    it('does not retry forever', async () => {
      firstRequests(100, (request) => request.socket.destroy() !== undefined);
      using kube = await client();
      await assert.rejects(kube.request(LIST), /GET .*leases at 127\.0\.0\.1/);
      assert.equal(api.seen.length, 4);
    });

    it('retries a busy server when it asks for that, and only then', async () => {
      firstRequests(
        1,
        (_request, response) => failure(response, 429, 'TooManyRequests', { 'retry-after': '0' }) === undefined,
      );
      using kube = await client();
      await kube.request(LIST);
      assert.equal(api.seen.length, 2);
      firstRequests(1, (_request, response) => failure(response, 500, 'InternalError') === undefined);
      await assert.rejects(kube.request(LIST), /status 500 InternalError/);
      assert.equal(api.seen.length, 3);
    });

    it('shows the answer of a proxy in between', async () => {
      api.intercept = (_request, response) => Boolean(response.writeHead(403).end('<html>no</html>'));
      using kube = await client();
      await assert.rejects(kube.request(LIST), /status 403 <html>no<\/html>/);
    });

    it('uses a rotated token once the old one is due to be read again', async () => {
      using _times = changed(KUBE, { rereadMs: 0 });
      using kube = await client();
      await kube.request(LIST);
      api.token = 'rotated';
      await kube.request(LIST);
    });

    it('closes a connection of rotated credentials when its call has ended', { timeout: 60_000 }, async () => {
      const held = Promise.withResolvers<ServerResponse>();
      firstRequests(1, (_request, response) => {
        held.resolve(response);
        return true;
      });
      using _times = changed(KUBE, { rereadMs: 0 });
      using kube = await client();
      const slow = kube.request(LIST);
      const response = await held.promise;
      const socket = response.socket as Socket;
      api.token = 'rotated';
      await kube.request(LIST);
      assert.equal(socket.destroyed, false, 'a call that runs keeps its connection');
      const closed = once(socket, 'close');
      response.end('{}');
      assert.deepEqual(await slow, {});
      await closed;
    });

    it('keeps the last credentials while new ones cannot be read', async () => {
      let reads = 0;
      const source = () =>
        reads++ === 0 ? Promise.resolve(api.connection) : Promise.reject(new Error('half written'));
      using _times = changed(KUBE, { rereadMs: 0 });
      using kube = await kubeClient({ source });
      await kube.request(LIST);
      await kube.request(LIST);
      assert.equal(reads, 3);
    });

    it('fails at start when its credentials cannot be read', async () => {
      await assert.rejects(kubeClient({ source: () => Promise.reject(new Error('no file')) }), /no file/);
    });

    it('does not queue calls beyond their deadline', async () => {
      using kube = await client({ qps: 0.001, burst: 1, timeoutMs: 60_000 });
      await kube.request(LIST);
      await assert.rejects(
        kube.request(LIST),
        /too many calls wait: --kubeconfig-qps does not let this one through in time/,
      );
      assert.equal(api.seen.length, 1);
    });

    it('ends a call when its caller aborts it', async () => {
      api.intercept = () => true;
      using kube = await client();
      const controller = new AbortController();
      const call = kube.request({ ...LIST, signal: controller.signal });
      await until(() => api.seen.length === 1);
      controller.abort();
      await assert.rejects(call, /abort/i);
    });

    it('ends a watch without events normally, and one that breaks with an error', async () => {
      using kube = await client();
      const options = { signal: new AbortController().signal, lengthMs: 10_000, idleMs: 30, onOpen: () => {} };
      for await (const event of kube.watch(LIST, options)) assert.fail(String(event));
      api.intercept = (request, response) => response.writeHead(200).write('{}\n{', () => request.socket.destroy());
      const broken = kube.watch(LIST, { ...options, idleMs: 10_000 });
      assert.deepEqual(await broken.next(), { done: false, value: {} });
      await assert.rejects(broken.next(), /GET .*leases at/);
    });
  });
});

describe('a rate limit', () => {
  function limitOf(perSecond: number, atOnce: number, now: () => number): (patienceMs: number) => number {
    const bucket = new TokenBucket(now);
    return (patienceMs) => reserve(bucket, { perSecond, atOnce }, patienceMs);
  }

  it('lets a burst through at once, then one call per interval', () => {
    const limit = limitOf(5, 3, () => 1000);
    assert.deepEqual(
      Array.from({ length: 5 }, () => limit(10_000)),
      [0, 0, 0, 200, 400],
    );
  });

  it('refills while nobody calls, up to the burst and not beyond', () => {
    let now = 0;
    const limit = limitOf(5, 2, () => now);
    for (let call = 0; call < 3; call++) limit(10_000);
    now = 60_000;
    assert.deepEqual([limit(0), limit(0), limit(10_000)], [0, 0, 200]);
  });

  it('reserves no place for a call that would not wait for it', () => {
    const limit = limitOf(1, 1, () => 0);
    limit(0);
    assert.equal(limit(999), 1000);
    assert.equal(limit(1000), 1000);
    assert.equal(limit(2000), 2000);
  });
});
