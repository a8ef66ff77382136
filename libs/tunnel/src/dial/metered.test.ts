import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { SpareBytes } from '../limits/spare-bytes.ts';
import { established, request } from '../testing.ts';
import type { Dial } from './dial.ts';
import { metered } from './metered.ts';

function dials() {
  const spare = new SpareBytes({ use: () => 0, every: () => () => {} });
  const inner: Dial = async () => established();
  const dial = metered(inner, spare);
  return (tenant: string) => dial({ ...request, tenant });
}

test('tunnels of one tenant have the same meter, and those of another one of its own', async () => {
  const dial = dials();
  const [first, second, other] = [await dial('a'), await dial('a'), await dial('b')];
  assert.ok(first.meter);
  assert.equal(second.meter, first.meter);
  assert.notEqual(other.meter, first.meter);
});

test('a tenant without tunnels is forgotten', async () => {
  const dial = dials();
  const [first, second] = [await dial('a'), await dial('a')];
  for (const { end } of [first, second]) {
    end.stream.destroy();
    await once(end.stream, 'close');
  }
  const later = await dial('a');
  assert.notEqual(later.meter, first.meter);
});

test('a dial that fails meters nothing', async () => {
  const spare = new SpareBytes({ use: () => 0, every: () => () => {} });
  const failure = new Error('no agent');
  const dial = metered(() => Promise.reject(failure), spare);
  await assert.rejects(dial(request), failure);
});
