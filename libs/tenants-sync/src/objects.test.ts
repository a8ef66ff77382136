import assert from 'node:assert/strict';
import { beforeEach, describe, it } from 'node:test';
import type { KubeObject } from '@isthmus/kube';
import { SYNC } from './defaults.ts';
import { KnownObjects } from './objects.ts';
import { Shares } from './shares.ts';

describe('the known objects of one kind', () => {
  let now: number;
  let told: string[];
  let known: KnownObjects<KubeObject, string>;

  beforeEach(() => {
    now = 0;
    told = [];
    known = new KnownObjects<KubeObject, string>({
      keep: ({ metadata: { labels } }, isKnown) => (labels?.is === 'too much' && !isKnown ? undefined : labels?.is),
      changed: (name, gone) => void told.push(gone === undefined ? name : `-${name} ${gone}`),
      rolledBack: (name) => void told.push(`${name} as it was`),
      failed() {},
      shares: new Shares({ why: () => 'no room', short() {} }),
      listed() {},
      restores: { count: 0 },
      now: () => now,
    });
  });

  const object = (name: string, version: number, is?: string): KubeObject => ({
    metadata: { name, namespace: 'n', resourceVersion: String(version), ...(is !== undefined && { labels: { is } }) },
  });
  /** Lists objects, of which nothing is known anew. */
  const list = (version: number, ...objects: KubeObject[]) => {
    known.listing();
    for (const each of objects) known.seen(each);
    known.listed(String(version));
  };

  it('go when the API server says that they were deleted', () => {
    known.seen(object('a', 1, 'first'));
    known.deleted(object('a', 2, 'last'));
    assert.deepEqual(told, ['n/a', '-n/a last']);
    assert.equal(known.get('n/a'), undefined);
  });

  it('stay when they were deleted before they were created again', () => {
    list(4, object('a', 4, 'x'));
    known.deleted(object('a', 3, 'w'));
    assert.deepEqual([told, known.get('n/a')], [['n/a'], 'x']);
  });

  it('stay when a list lacks them, until another an hour later does', () => {
    known.seen(object('a', 1, 'x'));
    known.seen(object('b', 1, 'x'));
    list(5, object('b', 1, 'x'));
    now = SYNC.absentMs - 1;
    list(6, object('b', 1, 'x'));
    assert.equal(known.get('n/a'), 'x');
    now = SYNC.absentMs;
    list(7, object('b', 1, 'x'));
    assert.deepEqual(told, ['n/a', 'n/b', '-n/a x']);
  });

  it('stay when one list has them in between', () => {
    known.seen(object('a', 1, 'x'));
    list(5, object('b', 1, 'x'));
    list(6, object('a', 1, 'x'));
    now = SYNC.absentMs;
    list(7, object('b', 1, 'x'));
    assert.equal(known.get('n/a'), 'x');
  });

  it('stay when lists come back empty, or are older than they are', () => {
    known.seen(object('a', 100, 'x'));
    for (const hour of [0, 1, 2]) {
      now = hour * SYNC.absentMs;
      list(200);
      list(99, object('b', 1, 'x'));
    }
    assert.equal(known.get('n/a'), 'x');
  });

  it('stay through ten minutes without an API server, and with one that has come back as it was a day ago', () => {
    known.seen(object('old', 100, 'x'));
    known.seen(object('new', 200, 'x'));
    list(200, object('old', 100, 'x'), object('new', 200, 'x'));
    for (; now < 600_000; now += SYNC.statusMs) known.failed(new Error('ECONNREFUSED'));
    known.seen(object('old', 90, 'x'));
    for (let hours = 0; hours < 24; hours++) {
      now += SYNC.absentMs;
      list(91 + hours, object('old', 90, 'x'));
    }
    assert.equal(known.get('n/new'), 'x');
    assert.deepEqual(told, ['n/old', 'n/new', 'n/old as it was', 'n/new as it was']);
    for (let lists = 0; lists < 3; lists++) {
      now += SYNC.absentMs;
      list(1000 + lists, object('old', 90, 'x'));
    }
    assert.equal(known.get('n/new'), 'x');
    known.deleted(object('new', 2000, 'x'));
    assert.equal(known.get('n/new'), undefined);
    known.seen(object('old', 80, 'w'));
    assert.deepEqual([told.slice(-2), known.get('n/old')], [['n/old as it was', 'n/old'], 'w']);
  });

  it('stay where the API server went back and has overtaken their versions before it lists', () => {
    known.seen(object('a', 200, 'x'));
    known.seen(object('b', 210, 'x'));
    known.seen(object('a', 190, 'w'));
    for (const version of [300, 400, 500]) {
      list(version, object('a', 190, 'w'));
      now += SYNC.absentMs;
    }
    assert.deepEqual([known.get('n/a'), known.get('n/b')], ['w', 'x']);
  });

  it('stay where the API server comes back with versions so far ahead that nobody has written that much', () => {
    known.seen(object('old', 100, 'x'));
    known.seen(object('new', 200, 'x'));
    list(300, object('old', 100, 'x'), object('new', 200, 'x'));
    for (const version of [1_000_000_090, 1_000_000_100, 1_000_000_200]) {
      now += SYNC.absentMs;
      list(version, object('old', 100, 'x'));
    }
    assert.equal(known.get('n/new'), 'x');
    assert.deepEqual(told, ['n/old', 'n/new', 'n/new as it was']);
  });

  it('go where much was written since', () => {
    known.seen(object('a', 100, 'x'));
    list(300, object('a', 100, 'x'));
    for (const version of [20_000_000, 40_000_000]) {
      now += SYNC.absentMs;
      list(version, object('b', version, 'x'));
    }
    assert.equal(known.get('n/a'), undefined);
  });

  it('go when they are no longer what is kept', () => {
    known.seen(object('a', 1, 'x'));
    known.seen(object('a', 2));
    assert.deepEqual(told, ['n/a', '-n/a x']);
  });

  it('are told of whenever something else is kept of them', () => {
    known.seen(object('a', 1, 'x'));
    known.seen(object('a', 2, 'x'));
    known.seen(object('a', 2, 'y'));
    assert.deepEqual(told, ['n/a', 'n/a']);
  });

  it('go only when they are gone, though their namespace has no room for them any more', () => {
    known.assume('n/a', 'stands for it');
    for (const version of [1, 2]) known.seen(object('b', version, 'too much'));
    assert.equal(known.get('n/b'), undefined);
    for (const version of [1, 2, 3]) {
      list(version, object('a', 1, 'too much'), object('b', version, 'too much'));
      now += SYNC.absentMs;
    }
    assert.deepEqual([told, known.get('n/a')], [['n/a'], 'too much']);
  });

  it('go in the same way when nobody has seen them, as those of which only a file is left', () => {
    known.assume('n/a', 'stands for it');
    for (; now < 3 * SYNC.absentMs; now += SYNC.absentMs) list(4);
    assert.deepEqual(told, []);
    now = 0;
    list(5, object('b', 1, 'x'));
    now = SYNC.absentMs;
    list(6, object('b', 1, 'x'));
    assert.deepEqual(told, ['n/b', '-n/a stands for it']);
  });
});
