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

test('who gives up its turn leaves the queue at once, and the others keep their order', async () => {
  const turns = new Semaphore(1);
  const first = Promise.withResolvers<void>();
  const ran: string[] = [];
  const holder = turns.take(() => first.promise);
  const givenUp = new AbortController();
  const gone = turns.take(async () => ran.push('gone'), '', givenUp.signal);
  const others = ['second', 'third'].map((name) => turns.take(async () => ran.push(name)));
  givenUp.abort(new Error('given up'));
  // The holder still has its turn.
  await assert.rejects(gone, /given up/);
  first.resolve();
  await Promise.all([holder, ...others]);
  assert.deepEqual(ran, ['second', 'third']);
});

test('a turn that is given up just as it comes goes to the next', async () => {
  const turns = new Semaphore(1);
  const first = Promise.withResolvers<void>();
  const holder = turns.take(() => first.promise);
  const givenUp = new AbortController();
  const gone = turns.take(async () => assert.fail('it ran'), '', givenUp.signal);
  const next = turns.take(async () => 'ran');
  first.resolve();
  await holder;
  givenUp.abort(new Error('given up'));
  await assert.rejects(gone, /given up/);
  assert.equal(await next, 'ran');
  await assert.rejects(
    turns.take(async () => assert.fail('it ran'), '', givenUp.signal),
    /given up/,
  );
  assert.equal(await turns.take(async () => 'free'), 'free');
});
