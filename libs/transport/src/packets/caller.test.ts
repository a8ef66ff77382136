import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { until } from '@isthmus/runtime/testing';
import { planeEvents } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { collect, serve, silent, types } from './testing.ts';

test('a caller’s stream carries one tunnel: another dial on it is refused and the first goes on', async () => {
  const { hub, agent, fars, requests } = serve({ role: 'gateway' });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 6n });
  await until(() => agent.sent.length === 2, 'two answers');
  assert.equal(requests.length, 1);
  const refusal = agent.sent.find((packet) => packet.type === 'DIAL_RSP' && packet.random === 6n);
  assert.match((refusal as { error: string }).error, /one tunnel only/);
  hub.send({ type: 'DATA', connectID: 1n, error: '', data: Buffer.from('still here') });
  assert.equal(String((await once(fars[0] as Duplex, 'data'))[0]), 'still here');
});

const BAD_DIALS: [protocol: string, address: string, error: RegExp][] = [
  ['tcp', '', /bad destination ""/],
  ['tcp', 'no-port', /bad destination "no-port"/],
  ['udp', 'h:53', /unknown network/],
];

for (const [protocol, address, error] of BAD_DIALS) {
  test(`a caller’s dial of ${protocol} "${address}" is refused and its stream ends`, async () => {
    const { hub, agent, served } = serve({ role: 'gateway' });
    hub.send({ type: 'DIAL_REQ', protocol, address, random: 5n });
    assert.equal(await served.closed, undefined);
    assert.equal(agent.sent.length, 1);
    assert.match((agent.sent[0] as { error: string }).error, error);
  });
}

test('a caller that closes gets CLOSE_RSP and then the end of its stream', async () => {
  const { hub, agent, served, fars, outcomes } = serve({ role: 'gateway' });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until(() => served.open === 1 && fars.length === 1, 'tunnel');
  hub.send({ type: 'CLOSE_REQ', connectID: 1n });
  fars[0]?.resume();
  assert.equal(await served.closed, undefined);
  assert.deepEqual(types(agent), ['DIAL_RSP', 'CLOSE_RSP']);
  assert.equal(outcomes[0]?.by, 'caller');
  assert.equal(outcomes[0]?.error, undefined);
});

test('a caller that reads the end of its tunnel slowly gets all of it, and its tunnel counts until then', async (context) => {
  const { hub, agent, served, fars, outcomes } = serve({ role: 'gateway' });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until(() => fars.length === 1 && agent.sent.length === 1, 'tunnel');
  agent.full = true;
  context.mock.timers.enable({ apis: ['setTimeout'] });
  fars[0]?.resume().end('the end');
  // `until` would wait by the timers that stand.
  for (let turns = 0; turns < 100; turns++) await setImmediate();
  context.mock.timers.tick(5 * TRANSPORT.packetsCloseMs);
  context.mock.timers.reset();
  assert.deepEqual(types(agent), ['DIAL_RSP', 'DATA']);
  assert.deepEqual([agent.over, outcomes.length], [false, 0]);
  agent.drain();
  assert.equal(await served.closed, undefined);
  assert.deepEqual(types(agent), ['DIAL_RSP', 'DATA', 'CLOSE_RSP']);
  await until(() => outcomes.length === 1, 'over');
  assert.deepEqual([outcomes[0]?.how, outcomes[0]?.by], ['closed', 'destination']);
});

test('a caller’s stream that breaks while it dials aborts the dial', async () => {
  const { hub, served, requests } = serve({ role: 'gateway', dial: silent });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until(() => requests.length === 1, 'dialled');
  hub.destroy(new Error('gone'));
  assert.equal(requests[0]?.signal.aborted, true);
  assert.match((await served.closed)?.message ?? '', /gone/);
});

test('a slow destination pauses its caller’s stream and nothing is lost', async () => {
  const events = planeEvents();
  const told: string[] = [];
  events.on('receive:full', (role) => told.push(`full ${role}`));
  events.on('receive:free', (role) => told.push(`free ${role}`));
  const { hub, agent, fars, served } = serve({ role: 'gateway', events });
  hub.send({ type: 'DIAL_REQ', protocol: 'tcp', address: 'h:1', random: 5n });
  await until(() => fars.length === 1, 'tunnel');
  const data = Buffer.alloc(32 * 1024, 'x');
  for (let i = 0; i < 64; i++) hub.send({ type: 'DATA', connectID: 1n, error: '', data });
  hub.send({ type: 'CLOSE_REQ', connectID: 1n });
  await until(() => agent.paused, 'paused');
  assert.deepEqual(told, ['full gateway']);
  const received = collect(fars[0] as Duplex);
  assert.equal((await received).length, 64 * data.length);
  assert.equal(await served.closed, undefined);
  assert.equal(agent.paused, false);
  assert.deepEqual([told.length % 2, told.at(-1)], [0, 'free gateway']);
});
