import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agent, beginning, server } from '../exposition/testing.ts';

const EXPIRY = 'isthmus_certificate_expiry_timestamp_seconds';

test('the page has a line only for each certificate in use: its expiry in seconds since the epoch', async () => {
  const { events, metrics } = server();
  assert.deepEqual(await beginning(metrics, EXPIRY), {});
  events.emit('certificate', 'callers', 1_900_000_000_000);
  events.emit('certificate', 'admin', 1_800_000_000_000);
  events.emit('certificate', 'callers', 2_000_000_000_000);
  events.emit('certificate:failure', 'admin', new Error('there is no certificate (PEM) in tls.crt'));
  assert.deepEqual(await beginning(metrics, EXPIRY), { '{where="callers"}': 2e9, '{where="admin"}': 1.8e9 });
  const other = agent();
  other.events.emit('certificate', 'uplink', 1_900_000_000_000);
  assert.deepEqual(await beginning(other.metrics, EXPIRY), { '{where="uplink"}': 1.9e9 });
});
