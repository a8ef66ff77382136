import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aDial } from '../testing.ts';
import { isParked, ordered } from './dials.ts';
import { DialFeed, MAX_KEPT_DIALS } from './feed.ts';

const RUNNING = { state: 1, ms: undefined } as const;

test('the end of a dial replaces its start', () => {
  const feed = new DialFeed();
  feed.take('g1', aDial('d1', RUNNING));
  feed.take('g1', aDial('d2'));
  feed.take('g1', aDial('d1', { ms: 9 }));
  assert.deepEqual(
    feed.list().map(({ dial }) => [dial.dialId, dial.ms]),
    [
      ['d2', 5],
      ['d1', 9],
    ],
  );
});

test('an hour of a busy plane leaves the newest thousand', () => {
  const feed = new DialFeed();
  for (let n = 0; n < 200_000; n++) feed.take('g1', aDial(`d${n}`));
  assert.equal(feed.size, MAX_KEPT_DIALS);
  assert.equal(feed.list()[0]?.dial.dialId, 'd199999');
});

test('dials whose end may be among lost events no longer run', () => {
  const feed = new DialFeed();
  feed.take('g1', aDial('d1', RUNNING));
  feed.take('g2', aDial('d2', RUNNING));
  feed.take('g1', aDial('d3'));
  feed.skip('g1', 7);
  assert.deepEqual(
    feed.list().map(({ dial }) => dial.dialId),
    ['d3', 'd2'],
  );
  assert.equal(feed.lost, 7);
});

test('dials are found by agent, and as slowest, failing and parked', () => {
  const feed = new DialFeed();
  feed.take('g1', aDial('fast', { agentId: 'edge-1' }));
  feed.take('g1', aDial('slow', { ms: 5000, agentId: 'edge-2' }));
  feed.take('g1', aDial('failed', { state: 3, ms: 50, agentId: '' }));
  feed.take('g1', aDial('waited', { parkedMs: 100, ms: 120 }));
  feed.take('g1', aDial('waits', { ...RUNNING, startedMs: 9000 }));
  const ids = (order: Parameters<typeof ordered>[1], agent = '') =>
    ordered(feed.list(), order, agent, 10_000).map(({ dial }) => dial.dialId);
  assert.deepEqual(ids('newest', 'EDGE'), ['slow', 'fast']);
  assert.deepEqual(ids('slowest').slice(0, 3), ['slow', 'waits', 'waited']);
  assert.deepEqual(ids('failing'), ['failed']);
  assert.deepEqual(ids('parked'), ['waits', 'waited']);
  assert.equal(isParked({ member: 'g1', dial: aDial('d') }), false);
});
