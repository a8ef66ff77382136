import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { changed, until } from '@isthmus/runtime/testing';
import { type KubeClient, kubeClient } from './client.ts';
import { KUBE } from './defaults.ts';
import { compareVersions, followObjects, type KubeObject } from './objects.ts';
import { FakeApiServer, failure } from './testing/api-server.ts';

const PATH = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases';

describe('the followed objects of one kind', () => {
  let api: FakeApiServer;
  let client: KubeClient;
  let told: string[];

  beforeEach(async () => {
    api = await FakeApiServer.start();
    client = await kubeClient({ source: async () => api.connection, qps: -1 });
    told = [];
  });
  afterEach(async () => {
    client[Symbol.dispose]();
    await api[Symbol.asyncDispose]();
  });

  const follow = () =>
    followObjects<KubeObject>(
      client,
      { path: PATH },
      {
        seen: ({ metadata: { name } }) => void told.push(name),
        deleted: ({ metadata: { name } }) => void told.push(`-${name}`),
        listed: (_version, names) => void told.push(`=${[...names].join()}`),
        failed: (error) => void told.push(error ? `!${/status \d+|ended/.exec(error.message)?.[0]}` : 'ok'),
      },
    );
  const put = (name: string) => api.put({ metadata: { name, namespace: 'kube-system' } });
  const calls = () => api.calls.filter((call) => call.startsWith('GET'));

  it('are listed once and then watched, and only the API server says that one was deleted', async () => {
    put('a');
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    put('b');
    api.remove('a');
    await until(() => told.includes('-a'));
    assert.deepEqual(told, ['a', '=kube-system/a', 'ok', 'b', '-a']);
    assert.deepEqual(calls(), [`GET ${PATH}`, `GET ${PATH}?watch`]);
  });

  it('are listed again when the API server has forgotten the version (410), which deletes none', async () => {
    put('a');
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    api.leases.clear();
    api.expire();
    await until(() => told.filter((each) => each === 'ok').length === 2);
    assert.deepEqual(told, ['a', '=kube-system/a', 'ok', '!ended', '=', 'ok']);
  });

  it('are followed past events of a kind that nobody knows', async () => {
    put('a');
    const strange = [
      { type: 'RENAMED', object: { metadata: { name: 'c', resourceVersion: '1' } } },
      { type: 'SUMMARY' },
      { type: 'ADDED', object: { metadata: { name: 'b', namespace: 'n', resourceVersion: '901' } } },
    ];
    api.intercept = ({ url = '' }, response) => {
      if (!url.includes('watch')) return false;
      response.writeHead(200).write(strange.map((event) => `${JSON.stringify(event)}\n`).join(''));
      return true;
    };
    await using _following = follow();
    await until(() => told.includes('b'));
    assert.deepEqual(told, ['a', '=kube-system/a', 'ok', 'b']);
  });

  it('are listed again when the API server comes back with an older version', async () => {
    put('a');
    let version = 0;
    api.intercept = ({ url = '' }, response) => {
      if (url.includes('watch')) return false;
      const items =
        url.includes('limit=1&') || url.endsWith('limit=1') ? [] : [{ metadata: { name: 'a', namespace: 'n' } }];
      response.writeHead(200).end(JSON.stringify({ metadata: { resourceVersion: String(version || 900) }, items }));
      return true;
    };
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    version = 50;
    // The connection of the watch breaks.
    api.cutWatches();
    await until(() => told.filter((each) => each === '=n/a').length === 2);
  });

  it('come in pages, which become smaller when an answer is too long', async () => {
    const limits: string[] = [];
    api.intercept = ({ url = '' }, response) => {
      const query = new URL(url, 'http://x').searchParams;
      if (query.has('watch')) return false;
      limits.push(`${query.get('limit')} ${query.get('continue') ?? ''}`.trim());
      if (Number(query.get('limit')) > 40) {
        response.writeHead(200).end(Buffer.alloc(33 * 1024 * 1024, 0x20));
        return true;
      }
      const first = !query.has('continue');
      const metadata = { resourceVersion: '5', ...(first && { continue: 'more' }) };
      const items = [{ metadata: { name: first ? 'a' : 'b', namespace: 'n' } }];
      response.writeHead(200).end(JSON.stringify({ metadata, items }));
      return true;
    };
    await using _following = follow();
    await until(() => told.includes('=n/a,n/b'));
    assert.deepEqual(limits, ['250', '32', '32 more']);
  });

  it('are listed from the beginning when the API server has forgotten a page (410), and none is gone', async () => {
    const pages = ['1', '410', '1', '2'];
    api.intercept = ({ url = '' }, response) => {
      const query = new URL(url, 'http://x').searchParams;
      if (query.has('watch')) return false;
      const page = pages.shift();
      assert.equal(query.has('continue'), page !== '1');
      if (page === '410') failure(response, 410, 'Expired');
      else {
        const metadata = { resourceVersion: '5', ...(page === '1' && { continue: 'more' }) };
        const items = [{ metadata: { name: page, namespace: 'n' } }];
        response.writeHead(200).end(JSON.stringify({ metadata, items }));
      }
      return true;
    };
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    assert.deepEqual(told, ['1', '!status 410', '1', '2', '=n/1,n/2', 'ok']);
  });

  it('are watched on where they were when a watch has been silent for long, without bookmarks too', async () => {
    using _times = changed(KUBE, { objectsIdleMs: 50, watchRetryFirstMs: 5 });
    put('a');
    await using _following = follow();
    await until(() => calls().filter((call) => call.endsWith('?watch')).length >= 3);
    assert.deepEqual(
      told.filter((each) => each !== 'ok'),
      ['a', '=kube-system/a'],
    );
  });

  it('are followed where they are now served', async () => {
    put('a');
    const paths = ['/apis/none/v1/leases', PATH];
    api.intercept = ({ url = '' }, response) => {
      if (!url.startsWith('/apis/none/')) return false;
      failure(response, 404, 'NotFound');
      return true;
    };
    await using _following = followObjects<KubeObject>(
      client,
      { path: async () => paths.shift() ?? PATH },
      {
        seen: ({ metadata: { name } }) => void told.push(name),
        deleted() {},
        listed() {},
        failed: (error) => void told.push(error ? `${/status \d+/.exec(error.message)?.[0]}` : 'ok'),
      },
    );
    await until(() => told.at(-1) === 'ok');
    assert.deepEqual(told, ['status 404', 'a', 'ok']);
  });

  it('stay as they are while they may not be listed', async () => {
    put('a');
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    api.intercept = (_request, response) => {
      failure(response, 403, 'Forbidden');
      return true;
    };
    api.expire();
    await until(() => told.includes('!status 403'));
    assert.deepEqual(told.slice(0, 5), ['a', '=kube-system/a', 'ok', '!ended', '!status 403']);
  });
});

it('versions are compared as numbers, and others not at all', () => {
  assert.equal(compareVersions('9', '10'), -1);
  assert.equal(compareVersions('18446744073709551616', '18446744073709551615'), 1);
  assert.equal(compareVersions('', '10'), 0);
});
