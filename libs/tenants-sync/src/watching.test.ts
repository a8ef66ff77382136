import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { KubeClient } from '@isthmus/kube';
import { changed, until } from '@isthmus/runtime/testing';
import { SYNC } from './defaults.ts';
import type { From, SourceName, SourceObject } from './kinds.ts';
import { Watching } from './watching.ts';

describe('what is watched', () => {
  /** By kind: the version of its lists, and its objects. */
  let lists: Record<string, { version: number; items: SourceObject[] }>;
  /** Tenants that were deleted, as they were last. */
  let deleted: SourceObject[];
  let now: number;
  let gone: string[];
  let changedNames: string[];
  /** Which secrets and config maps were said to be others than before. */
  let lacked: ((name: string) => boolean)[];
  /** What was said last of each kind and namespace that has more than its share. */
  let shorts: Map<string, string | undefined>;
  let ended: PromiseWithResolvers<void>;
  let watching: Watching;

  const object = (name: string, version: number, namespace = 'acme'): SourceObject => ({
    metadata: { name, namespace, resourceVersion: String(version) },
    status: {},
  });

  async function request({ path }: { path: string }): Promise<object> {
    if (path === '/apis/isthmus.dev') return { versions: [{ version: 'v1alpha1' }] };
    if (path === '/apis/cluster.x-k8s.io') return { versions: [{ version: 'v1beta2' }] };
    const { version, items } = lists[path.slice(path.lastIndexOf('/') + 1)] ?? { version: 0, items: [] };
    return structuredClone({ metadata: { resourceVersion: String(version) }, items });
  }

  /** How many watches have opened since all was to be listed: one of each kind. */
  let opened: number;

  /** Tells what was deleted after the version that is asked from, also before the watch began. */
  async function* watch(
    { path, query }: { path: string; query: { resourceVersion: string } },
    { onOpen, signal }: { onOpen: () => void; signal: AbortSignal },
  ): AsyncGenerator<object> {
    const isAfter = ({ metadata }: SourceObject) => Number(metadata.resourceVersion) > Number(query.resourceVersion);
    let isEnded = false;
    void ended.promise.then(() => {
      isEnded = true;
    });
    onOpen();
    opened++;
    for (let told = 0; !isEnded; ) {
      signal.throwIfAborted();
      const next = path.endsWith('/tenants') ? deleted[told] : undefined;
      if (next) told++;
      else await sleep(2);
      if (next && isAfter(next)) yield { type: 'DELETED', object: next };
    }
    yield { type: 'ERROR', object: { metadata: { name: '' }, code: 410, reason: 'Expired' } };
  }

  let kinds = 3;
  const listed = () => until(() => opened === kinds);

  /** Has all listed again. */
  async function again(): Promise<void> {
    const before = ended;
    ended = Promise.withResolvers();
    opened = 0;
    before.resolve();
    await listed();
  }

  const begin = (lying: readonly SourceName[] = [], from: readonly From[] = []) =>
    new Watching({
      ...{ client: { request, watch } as unknown as KubeClient, plane: 'isthmus', from, namespace: '', lying },
      agents: { namespace: '', serviceAccount: '', audience: '' },
      changed: (name, source) => void (source ? gone : changedNames).push(name),
      changedValues(isNamed) {
        lacked.push(isNamed);
      },
      failed() {},
      short: (what, why) => void shorts.set(what, why),
      rolledBack() {},
      listed() {},
      now: () => now,
    });

  beforeEach(() => {
    [lists, deleted, ended, now, gone, opened] = [{}, [], Promise.withResolvers(), 0, [], 0];
    [changedNames, shorts, lacked] = [[], new Map(), []];
    lists.tenants = { version: 100, items: [object('old', 10), object('new', 90)] };
    lists.secrets = { version: 100, items: [object('keys', 95)] };
    watching = begin();
  });
  afterEach(async () => {
    ended.resolve();
    await watching[Symbol.asyncDispose]();
  });

  it('has no status of an object that a list lacks, also an empty one, though its tenant stays', async () => {
    await listed();
    const { items } = lists.tenants ?? { items: [] };
    for (const left of [items.slice(0, 1), items, [], items]) {
      lists.tenants = { version: 100, items: left };
      await again();
      const has = (name: string) => left.some(({ metadata }) => metadata.name === name);
      for (const name of ['old', 'new'])
        assert.deepEqual(
          [watching.status(`acme/${name}`) !== undefined, watching.sources(`acme/${name}`).length],
          [has(name), 1],
        );
    }
  });

  it('keeps tenants of a restore that lifts the versions of lists, if an object of any kind is older', async () => {
    await listed();
    const bumped = 1_000_000;
    lists.tenants = { version: bumped, items: [object('old', 10)] };
    lists.secrets = { version: bumped, items: [object('keys', 60)] };
    for (let hours = 0; hours < 3; hours++) {
      await again();
      now += SYNC.absentMs;
    }
    assert.deepEqual([gone, watching.sources('acme/new').length], [[], 1]);
  });

  it('ends tenants that two lists an hour apart lack, if nothing shows a restore', async () => {
    await listed();
    lists.tenants = { version: 200, items: [object('old', 10)] };
    await again();
    now += SYNC.absentMs;
    await again();
    assert.deepEqual(gone, ['acme/new']);
  });

  it('ends tenants that were deleted just before a list that another namespace has caused, and no other', async () => {
    using _bounds = changed(SYNC, { namespaceEntries: 2 });
    const full = ['a', 'b', 'c'].map((name) => object(name, 11, 'full'));
    lists.tenants = { version: 100, items: [object('old', 10), object('new', 90), ...full] };
    await again();
    deleted.push(object('a', 101, 'full'));
    await until(() => gone.includes('full/a'));
    // The list lacks what was deleted before it. The watch tells of that later, also of what was created again.
    deleted.push(object('new', 102), object('old', 103));
    lists.tenants = { version: 110, items: [object('old', 104), ...full.slice(1)] };
    now += SYNC.freedMs;
    watching.listFreed();
    await until(() => gone.includes('acme/new') && watching.sources('full/c').length > 0, { deadline: 5000 });
    assert.deepEqual([gone, watching.sources('acme/old').length], [['full/a', 'acme/new'], 1]);
  });

  it('keeps a tenant that had no room, once it is listed while there is', async () => {
    using _bounds = changed(SYNC, { namespaceEntries: 2, namespaceBytes: 14 });
    const long = { ...object('new', 90, 'full'), spec: { a: 1 } };
    const few = ['a', 'b'].map((name) => object(name, 11, 'full'));
    lists.tenants = { version: 100, items: [...few, long] };
    await watching[Symbol.asyncDispose]();
    watching = begin([{ kind: 'Tenant', namespace: 'full', name: 'new' }]);
    for (let rounds = 0; rounds < 2; rounds++) await again();
    assert.match(`${watching.sources('full/new')[0]?.unkept}`, /more than/);
    deleted.push(object('a', 101, 'full'));
    lists.tenants = { version: 101, items: [...few.slice(1), long] };
    await until(() => gone.includes('full/a'), { deadline: 5000 });
    await again();
    assert.equal(watching.sources('full/new')[0]?.unkept, undefined);
  });

  it('has only those names judged again that a kind may lack which does not keep all', async () => {
    using _bounds = changed(SYNC, { namespaceEntries: 2 });
    await listed();
    [changedNames, lacked] = [[], []];
    const few = ['a', 'b', 'c'].map((name) => object(name, 11, 'full'));
    lists.tenants = { version: 100, items: [object('old', 10), object('new', 90), ...few] };
    const more = ['k1', 'k2'].map((name) => object(name, 96));
    lists.secrets = { version: 100, items: [object('keys', 95), ...more] };
    await again();
    assert.deepEqual([...shorts.keys()].sort(), ['secrets in namespace acme', 'tenants in namespace full']);
    assert.deepEqual(changedNames.sort(), ['full/a', 'full/b']);
    const names = ['acme/none', 'acme/keys', 'other/none'];
    assert.deepEqual(
      names.map((name) => lacked.some((isLacked) => isLacked(name))),
      [true, false, false],
    );
  });

  it('does not have a Cluster in force alone while the Tenant that overrides it may have had no room', async () => {
    using _bounds = changed(SYNC, { namespaceEntries: 2 });
    const labels = { 'isthmus.dev/plane': 'isthmus' };
    const cluster = (namespace: string) => {
      const { metadata } = object('prod', 10, namespace);
      return { metadata: { ...metadata, labels } };
    };
    const full = ['a', 'b', 'prod'].map((name) => object(name, 11, 'clusters'));
    lists.clusters = { version: 100, items: [cluster('clusters'), cluster('other')] };
    lists.tenants = { version: 100, items: [...full, object('a', 12, 'other')] };
    await watching[Symbol.asyncDispose]();
    [kinds, opened] = [5, 0];
    watching = begin([], ['cluster-api']);
    await listed();
    const unkept = (namespace: string) => watching.sources(`${namespace}/prod`).map((each) => each.unkept);
    assert.equal(unkept('clusters').length, 1);
    assert.match(
      `${unkept('clusters')[0]}`,
      /^another object of its name may be missing: what tenants of clusters say has/,
    );
    assert.deepEqual([unkept('other'), watching.sources('clusters/none')], [[undefined], []]);
    assert.deepEqual([...shorts.keys()], ['tenants in namespace clusters']);
    changedNames.length = 0;
    deleted.push(object('a', 101, 'clusters'));
    await until(() => gone.includes('clusters/a'), { deadline: 5000 });
    lists.tenants = { version: 101, items: full.slice(1) };
    await again();
    assert.deepEqual(
      watching.sources('clusters/prod').map(({ kind, unkept: why }) => [kind, why]),
      [
        ['Cluster', undefined],
        ['Tenant', undefined],
      ],
    );
    assert.ok(changedNames.includes('clusters/prod'));
    assert.deepEqual([...shorts.values()], [undefined]);
  });
});
