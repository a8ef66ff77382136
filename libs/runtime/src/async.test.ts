import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as tick } from 'node:timers/promises';
import { Semaphore } from './async.ts';

/** Takes work that ends when the test says so. */
function working(semaphore: Semaphore) {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const take = (name: string, of?: string) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    ends.set(name, resolve);
    const work = () => {
      begun.push(name);
      return promise;
    };
    return semaphore.take(work, of);
  };
  const end = async (name: string) => {
    ends.get(name)?.();
    await tick();
  };
  return { begun, take, end };
}

test('a semaphore lets what waits begin in order', async () => {
  const { begun, take, end } = working(new Semaphore(2));
  for (const name of ['a', 'b', 'c', 'd']) void take(name);
  assert.deepEqual(begun, ['a', 'b']);
  await end('b');
  assert.deepEqual(begun, ['a', 'b', 'c']);
  await end('c');
  await end('a');
  assert.deepEqual(begun, ['a', 'b', 'c', 'd']);
});

test('a semaphore lets nobody have all, and those that wait take turns', async () => {
  const { begun, take, end } = working(new Semaphore(3, 2));
  for (const name of ['a1', 'a2', 'a3', 'a4']) void take(name, 'a');
  assert.deepEqual(begun, ['a1', 'a2']);
  for (const name of ['b1', 'b2', 'c1']) void take(name, name[0]);
  assert.deepEqual(begun, ['a1', 'a2', 'b1']);
  await end('b1');
  assert.deepEqual(begun.splice(0), ['a1', 'a2', 'b1', 'b2'], 'a may have no more');
  await end('a1');
  await end('b2');
  await end('a2');
  assert.deepEqual(begun, ['a3', 'c1', 'a4']);
});

test('a semaphore goes on after work that failed', async () => {
  const semaphore = new Semaphore(1);
  await assert.rejects(
    semaphore.take(() => Promise.reject(new Error('no'))),
    /no/,
  );
  assert.equal(await semaphore.take(async () => 1), 1);
});
