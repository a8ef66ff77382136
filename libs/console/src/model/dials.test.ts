import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CONSOLE } from '../defaults.ts';
import { aDial } from '../testing.ts';
import { byAgent, DialFeed, dialLine, isParked, ordered, traceLink } from './dials.ts';

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

test('the newest is first, whichever member told it last', () => {
  const feed = new DialFeed();
  feed.take('g1', aDial('d1', { startedMs: 1000 }));
  feed.take('g1', aDial('d3', { startedMs: 3000 }));
  feed.take('g2', aDial('d2', { startedMs: 2000 }));
  assert.deepEqual(
    feed.list().map(({ dial }) => dial.dialId),
    ['d3', 'd2', 'd1'],
  );
});

test('an hour of a busy plane leaves the newest thousand', () => {
  const feed = new DialFeed();
  for (let n = 0; n < 200_000; n++) feed.take('g1', aDial(`d${n}`));
  assert.equal(feed.size, CONSOLE.keptDials);
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

test('agents of dials are compared by the time of half of their dials, the slowest first', () => {
  const feed = new DialFeed();
  for (const [index, ms] of [300, 310, 5000].entries()) feed.take('g1', aDial(`a${index}`, { ms, agentId: 'edge-1' }));
  // One slow dial makes no slow agent.
  for (const [index, ms] of [4, 5, 9000].entries()) feed.take('g2', aDial(`b${index}`, { ms, agentId: 'edge-2' }));
  feed.take('g2', aDial('failed', { state: 3, ms: 6, agentId: 'edge-2' }));
  feed.take('g1', aDial('runs', { ...RUNNING, agentId: 'edge-3' }));
  feed.take('g1', aDial('parked', { state: 3, ms: 20_000, agentId: '' }));
  feed.take('g1', aDial('other', { ms: 7, tenant: 'acme', agentId: 'edge-1' }));
  const both = { tenant: 'default', failed: 0 };
  assert.deepEqual(byAgent(feed.list()), [
    { ...both, agent: 'edge-1', dials: 3, halfMs: 310, slowestMs: 5000 },
    { ...both, agent: 'edge-1', tenant: 'acme', dials: 1, halfMs: 7, slowestMs: 7 },
    { ...both, agent: 'edge-2', dials: 4, failed: 1, halfMs: 5, slowestMs: 9000 },
  ]);
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

const PLACE = { address: '127.0.0.1:8095', gateway: 'gateway-1' };
const DIAL = { destination: '10.0.0.1:443', tenant: 'default', agentId: 'agent-1' };

test('a dial becomes the command line that repeats it', () => {
  assert.equal(
    dialLine(DIAL, PLACE),
    'isthmus dial --agent=agent-1 --gateway=gateway-1 --address=127.0.0.1:8095 10.0.0.1:443',
  );
  assert.equal(
    dialLine({ destination: '[fd00::1]:443', tenant: 'acme', agentId: '' }, { ...PLACE, gateway: '' }),
    "isthmus dial --tenant=acme --address=127.0.0.1:8095 '[fd00::1]:443'",
  );
});

test('names of an evil agent are quoted, are never options, and never reach a terminal with controls', () => {
  const evil = { ...DIAL, destination: '--help', agentId: '$(reboot)' };
  assert.equal(
    dialLine(evil, PLACE),
    "isthmus dial '--agent=$(reboot)' --gateway=gateway-1 --address=127.0.0.1:8095 -- --help",
  );
  assert.equal(dialLine({ ...DIAL, agentId: 'a\u001b]0;x\u0007' }, PLACE), undefined);
  assert.equal(dialLine({ ...DIAL, agentId: 'x'.repeat(10_240) }, PLACE), undefined);
});

test('a trace is linked by its id, if it is one', () => {
  const template = 'https://traces.example/{trace_id}?id={trace_id}';
  const id = '0af7651916cd43dd8448eb211c80319c';
  assert.equal(traceLink(template, id), `https://traces.example/${id}?id=${id}`);
  assert.equal(traceLink('', id), undefined);
  for (const wrong of ['', '../../x', `${id}0`]) assert.equal(traceLink(template, wrong), undefined);
});
