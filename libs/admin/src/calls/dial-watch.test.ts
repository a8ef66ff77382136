import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Watch } from './watch-dials.ts';

test('a watcher gets events in order, including those that arrive while it waits', async () => {
  const watch = new Watch<number>();
  const stop = new AbortController();
  const seen: number[] = [];
  watch.tell(1);
  watch.tell(2);
  for await (const { event, lost } of watch.until(stop.signal)) {
    assert.equal(lost, 0);
    seen.push(event as number);
    if (event === 2) setImmediate(() => watch.tell(3));
    if (event === 3) stop.abort();
  }
  assert.deepEqual(seen, [1, 2, 3]);
});

test('events that a slow watcher cannot take are dropped, and counted in their place', async () => {
  const watch = new Watch<number>(3);
  const told = watch.until(new AbortController().signal);
  for (let event = 1; event <= 8; event++) watch.tell(event);
  const first = await told.next();
  watch.tell(9);
  const rest = [first];
  for (let count = 0; count < 3; count++) rest.push(await told.next());
  assert.deepEqual(
    rest.map(({ value }) => value),
    [
      { event: 1, lost: 0 },
      { event: 2, lost: 0 },
      { event: 3, lost: 0 },
      { event: 9, lost: 5 },
    ],
  );
});

test('a watcher learns of dropped events even if nothing follows', async () => {
  const watch = new Watch<number>(1);
  for (let event = 1; event <= 4; event++) watch.tell(event);
  const told = watch.until(new AbortController().signal);
  assert.deepEqual((await told.next()).value, { event: 1, lost: 0 });
  assert.deepEqual((await told.next()).value, { event: undefined, lost: 3 });
});

test('a waiting watcher ends with its call', async () => {
  const stop = new AbortController();
  const told = new Watch<number>().until(stop.signal);
  const next = told.next();
  stop.abort();
  assert.deepEqual(await next, { value: undefined, done: true });
});
