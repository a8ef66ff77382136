import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DialError, type DialErrorCode, type PlaneEvents, planeEvents } from '@isthmus/tunnel';
import { failingDials } from './failing-dials.ts';
import { Recent } from './recent.ts';

const { signal } = new AbortController();

function dialled(events: PlaneEvents, host: string, code?: DialErrorCode, agentId = 'a', tenant = 'default'): void {
  const request = { id: 'd', tenant, destination: { host, port: 443 }, deadline: 0, signal };
  const error = code && { error: new DialError(code, `no ${host}`), failure: 'error' as const };
  events.emit('dial:start', 'gateway', request);
  events.emit('dial:end', 'gateway', request, { ms: 1, agentId, ...error });
}

function seen() {
  const events = planeEvents();
  const recent = new Recent(events);
  const failing = (now?: number) =>
    failingDials(recent.dials(), 'gateway', now).map(({ tenant, destination, code, count, agents }) =>
      [tenant, destination, code, count, agents.join('+')].join(' '),
    );
  return { events, recent, failing };
}

test('what fails three times and never succeeds since is reported, the most frequent first', () => {
  const { events, recent, failing } = seen();
  for (const agent of ['a', 'b', 'a']) dialled(events, 'x', 'connection_timeout', agent);
  for (let n = 0; n < 4; n++) dialled(events, 'y', 'connection_refused');
  for (let n = 0; n < 2; n++) dialled(events, 'chance', 'connection_refused');
  for (let n = 0; n < 5; n++) dialled(events, 'back', 'connection_refused');
  dialled(events, 'back');
  assert.deepEqual(failing(), ['default y:443 connection_refused 4 a', 'default x:443 connection_timeout 3 a+b']);
  const [, last] = failingDials(recent.dials(), 'gateway');
  assert.equal(last?.text, 'no x');
  assert.ok(Math.abs(Number(last?.lastMs) - Date.now()) < 60_000);
});

test('what an operator tries and does not reach, no caller missed', () => {
  const { events, recent, failing } = seen();
  const destination = { host: 'x', port: 443 };
  for (let n = 0; n < 3; n++) {
    const request = { id: 'd', tenant: 'default', destination, deadline: 0, signal, trial: true };
    events.emit('dial:start', 'gateway', request);
    const error = new DialError('connection_refused', 'no x');
    events.emit('dial:end', 'gateway', request, { ms: 1, error, failure: 'error' });
  }
  assert.deepEqual(failing(), []);
  const [slot] = recent.slots().slots;
  assert.deepEqual([slot?.dials, slot?.failures], [0, 0]);
});

test('five of the agents that tried are named, and all are counted', () => {
  const { events, recent } = seen();
  for (const agent of ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'a']) dialled(events, 'x', 'connection_timeout', agent);
  const [failing] = failingDials(recent.dials(), 'gateway');
  assert.deepEqual([failing?.agents, failing?.agentCount], [['a', 'b', 'c', 'd', 'e'], 7]);
});

test('each tenant and each error is counted by itself, and the last five minutes alone', () => {
  const { events, failing } = seen();
  for (let n = 0; n < 3; n++) {
    dialled(events, 'x', 'connection_timeout');
    dialled(events, 'x', 'dns_error');
    dialled(events, 'x', 'dns_error', 'a', 'acme');
  }
  dialled(events, 'x', undefined, 'a', 'acme');
  assert.deepEqual(failing(), ['default x:443 connection_timeout 3 a', 'default x:443 dns_error 3 a']);
  assert.deepEqual(failing(performance.now() + 300_001), []);
});
