import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, mock, test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { planeEvents } from '@isthmus/tunnel';
import { Succession } from './succession.ts';

describe('succession', () => {
  beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
  afterEach(() => mock.timers.reset());

  const settled = () => new Promise(setImmediate);

  /** A hub that has given way. */
  function gaveWay(shut: () => Promise<void>, begin: () => Promise<void>): Succession {
    const succession = new Succession({
      hubId: 'h1',
      events: planeEvents(),
      shut,
      begin,
      drain: () => Promise.resolve(),
      destroy() {},
    });
    succession.giveWay();
    return succession;
  }

  test('a hub that is closed while it comes back shuts what it has begun', async () => {
    const begun = deferred<void>();
    const done: string[] = [];
    const succession = gaveWay(
      async () => void done.push('shut'),
      async () => {
        done.push('begin');
        await begun.promise;
      },
    );
    succession.reclaim();
    await settled();
    assert.deepEqual(done, ['shut', 'begin']);
    succession.end();
    begun.resolve();
    await settled();
    assert.deepEqual(done, ['shut', 'begin', 'shut']);
  });

  test('a hub that cannot shut what there was says so, and tries again', async () => {
    let shuts = 0;
    let begins = 0;
    const shut = async () => {
      if (shuts++ === 0) throw new Error('stuck');
    };
    const succession = gaveWay(shut, async () => void begins++);
    succession.reclaim();
    await settled();
    assert.deepEqual([succession.check.ok, begins], [false, 0]);
    assert.match(succession.check.detail, /it cannot listen again: stuck/);
    mock.timers.tick(5000);
    await settled();
    assert.deepEqual([succession.check.ok, begins], [true, 1]);
  });
});
