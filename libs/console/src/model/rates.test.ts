import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aTunnel } from '../testing.ts';
import { TunnelRates } from './rates.ts';

test('a rate is known from the second look, and forgotten with its tunnel', () => {
  const rates = new TunnelRates();
  const tunnel = aTunnel('d1', { bytesUp: 3000, bytesDown: 100 });
  rates.take([aTunnel('d1')], 1000);
  assert.equal(rates.of(tunnel), undefined);
  rates.take([tunnel], 3000);
  assert.deepEqual(rates.of(tunnel), { up: 1500, down: 50 });
  rates.take([], 4000);
  rates.take([tunnel], 5000);
  assert.equal(rates.of(tunnel), undefined);
});
