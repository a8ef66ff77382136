import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Distrusted, planeEvents } from '@isthmus/tunnel';
import { RecentRefusals } from './recent-refusals.ts';

const ERROR = new Error('certificate has expired');

test('refusals of one kind are one, with their number and the address of the last', () => {
  const events = planeEvents();
  const refusals = new RecentRefusals(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  events.emit('refused', 'peers', '10.0.0.1:4002', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4003', ERROR);
  events.emit('refused', 'agents', '10.0.0.2:4004', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4005', new Error('no token'));
  assert.deepEqual(
    refusals.list().map(({ where, remote, reason, count }) => [where, remote, reason, count]),
    [
      ['agents', '10.0.0.1:4005', 'no token', 1],
      ['agents', '10.0.0.2:4004', 'certificate has expired', 1],
      ['agents', '10.0.0.1:4003', 'certificate has expired', 2],
      ['peers', '10.0.0.1:4002', 'certificate has expired', 1],
    ],
  );
});

test('a refusal tells whether the peer distrusted the certificate here', () => {
  const events = planeEvents();
  const refusals = new RecentRefusals(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  events.emit('refused', 'agents', '10.0.0.1:4002', new Distrusted('it went away'));
  assert.deepEqual(
    refusals.list().map(({ reason, distrusted }) => [reason, distrusted]),
    [
      ['it went away', true],
      ['certificate has expired', false],
    ],
  );
});

test('a flood of refusals leaves the last hundred, and none for ever', () => {
  const events = planeEvents();
  const refusals = new RecentRefusals(events);
  for (let n = 0; n < 1000; n++) events.emit('refused', 'agents', `10.0.${n >> 8}.${n & 255}:1`, ERROR);
  assert.equal(refusals.list().length, 100);
  assert.equal(refusals.list()[0]?.remote, '10.0.3.231:1');
  const later = Date.now() + 300_000;
  assert.deepEqual(refusals.list(undefined, later), []);
  assert.equal(refusals.list(3_600_000, later).length, 100);
});

test('a flood at one port leaves the refusals of the others', () => {
  const events = planeEvents();
  const refusals = new RecentRefusals(events);
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  for (let n = 0; n < 1000; n++)
    events.emit('refused', 'callers', '10.0.0.2:1', new Error(`not an HTTP request: ${n}`));
  const kept = refusals.list();
  assert.deepEqual([kept.length, kept[0]?.reason, kept.at(-1)?.where], [100, 'not an HTTP request: 999', 'agents']);
});

test('a probe that was announced is no refusal', () => {
  const events = planeEvents();
  const refusals = new RecentRefusals(events);
  refusals.expect('10.0.0.1:4001');
  events.emit('refused', 'agents', '10.0.0.1:4001', ERROR);
  assert.deepEqual(refusals.list(), []);
});
