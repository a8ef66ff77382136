import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { planeEvents, unlessProbed } from './events.ts';

/** If nobody caught this, it would end the process and fail this file. */
function defect(): never {
  throw new TypeError('a defect');
}

test('a subscriber that throws is reported as one fault, and the emitter and the other subscribers go on', () => {
  const events = planeEvents();
  const heard: string[] = [];
  const faults: unknown[][] = [];
  events.on('registry', (state) => heard.push(`first ${state}`));
  events.on('registry', defect);
  events.once('registry', defect);
  events.on('registry', (state) => heard.push(`last ${state}`));
  events.on('fault', (where, remote, { message }) => faults.push([where, remote, message]));
  assert.equal(events.emit('registry', 'up', ''), true);
  const fault = ['subscriber of registry', '', 'a defect'];
  assert.deepEqual(
    [heard, faults],
    [
      ['first up', 'last up'],
      [fault, fault],
    ],
  );
  events.emit('registry', 'down', '');
  assert.equal(faults.length, 3);
  events.removeAllListeners('registry');
  assert.equal(events.emit('registry', 'up', ''), false);
});

test('a subscriber that rejects is a fault too', async () => {
  const events = planeEvents();
  const fault = once(events, 'fault', { signal: AbortSignal.timeout(60_000) });
  events.on('registry', async () => defect());
  events.emit('registry', 'up', '');
  assert.equal((await fault)[0], 'subscriber of registry');
});

test('a fault subscriber that throws causes a process warning', async () => {
  const events = planeEvents();
  const heard: string[] = [];
  events.on('fault', defect);
  events.on('fault', (where) => heard.push(where));
  events.on('registry', defect);
  const warned = once(process, 'warning', { signal: AbortSignal.timeout(60_000) });
  events.emit('registry', 'up', '');
  assert.match(((await warned)[0] as Error).message, /a defect/);
  assert.deepEqual(heard, ['subscriber of registry']);
});

test('refusals are reported, except those of announced probes', () => {
  const told: string[] = [];
  const { probe, refused } = unlessProbed((where, remote) => void told.push(`${where} ${remote}`));
  const error = new Error('no certificate');
  probe('127.0.0.1:4000');
  refused('agents', '127.0.0.1:4000', error);
  refused('agents', '127.0.0.1:4001', error);
  refused('agents', 'gone', error);
  assert.deepEqual(told, ['agents 127.0.0.1:4001', 'agents gone']);
});

test('announcing too many probes hides only the latest ones', () => {
  const told: string[] = [];
  const { probe, refused } = unlessProbed((_where, remote) => void told.push(remote));
  for (let port = 1; port <= 101; port++) probe(`10.0.0.1:${port}`);
  for (let port = 1; port <= 101; port++) refused('agents', `10.0.0.1:${port}`, new Error('no'));
  assert.deepEqual(told, ['10.0.0.1:1']);
});
