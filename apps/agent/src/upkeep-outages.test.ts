import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import { MEMBERSHIP_TTL } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { agents, type FakeHub, FakePlane, hubsOf, MINUTE, planeOf } from './testing/fake-plane.ts';

test('behind an address that leads to one hub alone the other is sought ever more slowly', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  // Its address is not known, and the configured one leads to hub-a.
  plane.start('hub-b', { address: '' });
  const agent = plane.agent('agent-1', 'hub-a');
  await clock.run(2 * MINUTE);
  const asked = plane.asked.length;
  await clock.run(10 * MINUTE);
  assert.deepEqual(hubsOf(agent), ['hub-a']);
  const tries = plane.asked.length - asked;
  assert.ok(tries >= 6 && tries <= 21, `${tries} tries in ten minutes`);
});

test('an agent whose membership nobody renews keeps its sessions, and goes on with the hubs that it knew', async () => {
  const clock = new FakeClock();
  const plane = new FakePlane(clock);
  for (const hubId of ['hub-a', 'hub-b']) plane.start(hubId);
  const agent = plane.agent('agent-1', 'hub-a');
  await clock.run(2500);
  assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
  await clock.run(MEMBERSHIP_TTL);
  assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
  plane.asked.length = 0;
  for (const hubId of ['hub-a', 'hub-b']) plane.kill(hubId);
  await clock.run(MINUTE);
  assert.deepEqual(new Set(plane.asked), new Set(['hub-a', 'hub-b']));
});

for (const outage of ['short', 'long']) {
  test(`after a ${outage} time without any hub an agent finds those that come back, though its configured server does not`, async () => {
    const { clock, plane } = planeOf('hub-a', 'hub-b', 'hub-c');
    const fleet = agents(plane, 20);
    await clock.run(MINUTE);
    for (const hubId of ['hub-a', 'hub-b', 'hub-c']) plane.kill(hubId);
    await clock.run(outage === 'short' ? MEMBERSHIP_TTL / 2 : 20 * MINUTE);
    for (const hubId of ['hub-b', 'hub-c']) plane.start(hubId);
    await clock.run(15_000);
    for (const agent of fleet) assert.deepEqual(hubsOf(agent), ['hub-b', 'hub-c']);
  });
}

test('an agent whose known hubs are all gone for good does not ask them alone', async () => {
  const { clock, plane } = planeOf(...Array.from({ length: 50 }, (_, index) => `old-${index}`));
  plane.agent('agent-1', 'old-0', { server: { hosts: ['name'], port: 1 }, resolve: async () => ['first'] });
  plane.start('first');
  await clock.run(MINUTE);
  for (const hubId of plane.hubs.keys()) plane.kill(hubId);
  await clock.run(10 * MINUTE);
  plane.asked.length = 0;
  await clock.run(MINUTE);
  const asked = plane.asked.filter((address) => address === 'first').length;
  assert.ok(asked >= 6, `${asked} tries of the configured server in a minute`);
});

test('a server that takes agents only to say that it goes is asked ever more slowly', async () => {
  const { clock, plane } = planeOf('hub-a');
  const hub = plane.hubs.get('hub-a') as FakeHub;
  hub.leaves = true;
  plane.agent('agent-1', 'hub-a');
  await clock.run(MINUTE);
  const [first, second] = hub.accepted as [number, number];
  assert.ok(second - first <= 110, `first retry after ${second - first} ms`);
  assert.ok(hub.accepted.length <= 15, `${hub.accepted.length} connections in a minute`);
});

test('an agent that stops gives up what it began, and calls that no failure of the server', async () => {
  const { clock, plane } = planeOf('hub-a');
  const events = planeEvents();
  let failures = 0;
  events.on('server:failure', () => failures++);
  let given: AbortSignal | undefined;
  const agent = plane.agent('agent-1', 'hub-a', {
    events,
    connect: (_server, { signal }) => {
      given = signal;
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('given up'))));
    },
  });
  await clock.run(0);
  assert.equal(given?.aborted, false);
  agent.stop();
  await clock.run(MINUTE);
  assert.deepEqual([given?.aborted, failures], [true, 0]);
});

test('an agent connects again after a defect, wherever it strikes', async () => {
  for (const strikes of ['where a lost connection is told', 'amid its next look']) {
    const { clock, plane } = planeOf('hub-a', 'hub-b');
    const events = planeEvents();
    const faults: string[] = [];
    events.on('fault', (where, _remote, { message }) => faults.push(`${where}: ${message}`));
    let lost = false;
    const defect = () => {
      if (faults.length === 0) throw new Error('a defect');
    };
    const agent = plane.agent('agent-1', 'hub-a', {
      events,
      sessionCount: 1,
      closed() {
        lost = true;
        if (strikes.startsWith('where')) defect();
      },
      serverCount() {
        if (lost && strikes.startsWith('amid')) defect();
        return 1;
      },
    });
    await clock.run(MINUTE);
    const [hub] = hubsOf(agent) as [string];
    plane.kill(hub);
    await clock.run(MINUTE);
    assert.deepEqual(hubsOf(agent), [hub === 'hub-a' ? 'hub-b' : 'hub-a'], strikes);
    assert.deepEqual(faults, ['upkeep: a defect'], strikes);
  }
});
