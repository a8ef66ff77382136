import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it, mock } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@isthmus/runtime';
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
        listing: () => void told.push('list'),
        listed: () => void told.push('='),
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
    assert.deepEqual(told, ['list', 'a', '=', 'ok', 'b', '-a']);
    assert.deepEqual(calls(), [`GET ${PATH}`, `GET ${PATH}?watch`]);
  });

  it('are listed again when the API server has forgotten the version (410), which deletes none', async () => {
    put('a');
    await using _following = follow();
    await until(() => told.at(-1) === 'ok');
    api.leases.clear();
    api.expire();
    await until(() => told.filter((each) => each === 'ok').length === 2);
    assert.deepEqual(told, ['list', 'a', '=', 'ok', '!ended', 'list', '=', 'ok']);
  });

  it('are watched on from before a list, so that what was deleted then is told', async () => {
    for (const name of ['a', 'b', 'c']) put(name);
    await using following = follow();
    await until(() => told.at(-1) === 'ok');
    api.intercept = ({ url = '' }) => {
      if (url.includes('watch') || !api.leases.has('b')) return false;
      api.remove('a');
      api.remove('b');
      put('b');
      return false;
    };
    following.listAgain();
    await until(() => told.includes('-b'));
    const last = ['list', 'c', 'b', '=', 'ok', '-a', '-b'];
    assert.deepEqual(told.slice(6, 6 + last.length), last);
  });

  it('are watched on from there also if a list fails, and a list is not cut by another', async () => {
    put('a');
    await using following = follow();
    await until(() => told.at(-1) === 'ok');
    let lists = 0;
    api.intercept = ({ url = '' }, response) => {
      if (url.includes('watch')) return false;
      following.listAgain();
      lists++;
      if (lists === 1) api.remove('a');
      if (lists === 1) failure(response, 410, 'Expired');
      return lists === 1;
    };
    following.listAgain();
    await until(() => told.includes('-a'));
    assert.deepEqual([told, lists], [['list', 'a', '=', 'ok', 'list', '!status 410', 'list', '=', 'ok', '-a'], 2]);
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
    assert.deepEqual(told, ['list', 'a', '=', 'ok', 'b']);
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
    await until(() => told.filter((each) => each === '=').length === 2);
  });

  it('come in pages, of fewer objects where these are large, of one if need be, and then of more again', async () => {
    const asked: string[] = [];
    /** By where a page begins: how long each object is, and where the next one begins. */
    const pages = {
      '': { length: 100_000, next: 'b' },
      b: { length: 5_000_000, next: 'c' },
      c: { length: 1, next: undefined },
    };
    api.intercept = ({ url = '' }, response) => {
      const query = new URL(url, 'http://x').searchParams;
      if (query.has('watch')) return false;
      const limit = Number(query.get('limit'));
      const from = (query.get('continue') ?? '') as keyof typeof pages;
      const { length, next } = pages[from];
      asked.push(`${limit} ${from}`.trim());
      const metadata = { resourceVersion: '5', ...(next && { continue: next }) };
      const items = Array.from({ length: limit }, (_, n) => {
        return { metadata: { name: `${from}${n}`, namespace: 'n' }, data: 'x'.repeat(length) };
      });
      response.writeHead(200).end(JSON.stringify({ metadata, items }));
      return true;
    };
    await using _following = follow();
    await until(() => told.includes('='));
    assert.deepEqual(asked, ['250', '32', '64 b', '8 b', '1 b', '2 c']);
    assert.equal(told.indexOf('='), 1 + 32 + 1 + 2);
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
    assert.deepEqual(told, ['list', '1', '!status 410', 'list', '1', '2', '=', 'ok']);
  });

  it('are watched on where they were when a watch has been silent for long, without bookmarks too', async () => {
    using _times = changed(KUBE, { objectsIdleMs: 50, watchRetryFirstMs: 5 });
    put('a');
    await using _following = follow();
    await until(() => calls().filter((call) => call.endsWith('?watch')).length >= 3);
    assert.deepEqual(
      told.filter((each) => each !== 'ok'),
      ['list', 'a', '='],
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
        listing() {},
        listed() {},
        failed: (error) => void told.push(error ? `${/status \d+/.exec(error.message)?.[0]}` : 'ok'),
      },
    );
    await until(() => told.at(-1) === 'ok');
    assert.deepEqual(told, ['status 404', 'a', 'ok']);
  });

  it('stay whatever the API server answers, and are followed once it answers as it should', async () => {
    using _times = changed(KUBE, { watchRetryFirstMs: 1, objectsRetryCapMs: 1 });
    const nonsense = ['', 'null', '1', '"', '<html>', '[]', '{"items":[null]}', '{"items":[{}]}', '{"items":1}'];
    const lists = [...nonsense, ...[409, 410, 429, 500, 503]];
    const events = ['null', '{}', '{"type":"DELETED"}', '{"type":"ERROR"}', '{"type":"ADDED","object":{}}', '{"type'];
    const metadata = { name: 'a', namespace: 'n', resourceVersion: '5' };
    const whole = JSON.stringify({ metadata: { resourceVersion: '5' }, items: [{ metadata }] });
    const left = { lists: [...lists], events: [...events] };
    api.intercept = ({ url = '' }, response) => {
      const next = url.includes('watch') ? left.events.shift() : left.lists.shift();
      if (typeof next === 'number') failure(response, next, 'Nonsense');
      else if (url.includes('watch') && next === undefined) response.writeHead(200).flushHeaders();
      else response.writeHead(200).end(next === undefined ? whole : `${next}\n`);
      return true;
    };
    await using _following = follow();
    await until(() => left.events.length === 0 && told.at(-1) === 'ok', 'a watch after all of it');
    assert.deepEqual([...new Set(told.filter((each) => !each.startsWith('!')))].sort(), ['=', 'a', 'list', 'ok']);
  });

  it('are asked for again after a while, and not at once, by an answer that says nothing', async () => {
    api.intercept = (_request, response) => {
      response.writeHead(200).end('null');
      return true;
    };
    await using _following = follow();
    await until(() => told.at(-1)?.startsWith('!') ?? false);
    assert.equal(calls().length, 1);
  });

  it('are watched again at once where each watch is cut after a while, as by a balancer', async () => {
    using _times = changed(KUBE, { watchRetryFirstMs: 5, objectsRetryCapMs: 40 });
    const next = mock.method(Backoff.prototype, 'next');
    await using _following = follow();
    for (let watches = 1; watches <= 6; watches++) {
      await until(() => told.filter((each) => each === 'ok').length === watches, { every: 5 });
      await sleep(KUBE.objectsRetryCapMs + 10);
      api.cutWatches();
      await until(() => told.filter((each) => each === 'ok').length > watches, { every: 5 });
    }
    const pauses = next.mock.calls.map(({ result }) => result ?? Infinity);
    next.mock.restore();
    assert.ok(pauses.length >= 6 && Math.max(...pauses) <= KUBE.watchRetryFirstMs, `${pauses} ms`);
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
    assert.deepEqual(told.slice(0, 6), ['list', 'a', '=', 'ok', '!ended', 'list']);
    assert.equal(told[6], '!status 403');
  });
});

it('versions are compared as numbers, and others not at all', () => {
  assert.equal(compareVersions('9', '10'), -1);
  assert.equal(compareVersions('18446744073709551616', '18446744073709551615'), 1);
  assert.equal(compareVersions('', '10'), 0);
});
