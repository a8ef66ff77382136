import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agents, best, type FakeHub, type FakeUplink, hubsOf, MINUTE, planeOf } from './testing/fake-plane.ts';
import type { Upkeep } from './upkeep.ts';

for (const sessionCount of [1, 2]) {
  test(`a third hub gets its share of sessions within the time, ${sessionCount} of each agent`, async () => {
    const { clock, plane } = planeOf('hub-a', 'hub-b');
    const fleet = agents(plane, 600, { sessionCount });
    await clock.run(MINUTE);
    const before = fleet.map((agent) => agent.uplinks.map((uplink) => uplink as FakeUplink));
    plane.start('hub-c');
    const begun = clock.now();
    let fewest = sessionCount;
    for (let second = 0; second < 31; second++) {
      await clock.run(1000);
      fewest = Math.min(fewest, ...fleet.map((agent) => hubsOf(agent).length));
    }
    assert.equal(fewest, sessionCount, 'each connects to the new hub before it leaves another');
    const share = sessionCount / 3;
    const even = fleet.length * share;
    // Three standard deviations: 8.7 % for two sessions each, 17.3 % for one.
    const bound = 3 * Math.sqrt((1 - share) / even);
    for (const { id, uplinks } of plane.hubs.values()) {
      assert.ok(Math.abs(uplinks.size / even - 1) < bound, `${id} has ${uplinks.size} of ${even}`);
    }
    fleet.forEach((agent, index) => {
      assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, sessionCount));
      const stayed = before[index]?.filter((uplink) => agent.uplinks.includes(uplink)) ?? [];
      assert.ok(stayed.length >= sessionCount - 1, 'no more than one session of an agent moves');
    });
    const moved = plane.hubs.get('hub-c')?.accepted ?? [];
    const perSecond = Array.from(
      { length: 30 },
      (_, second) => moved.filter((at) => Math.floor((at - begun) / 1000) === second).length,
    );
    const rate = Math.max(...perSecond) / (fleet.length * sessionCount);
    assert.ok(rate < 0.03, `${rate * 100} % of the sessions in one second`);
  });
}

test('a session that carries tunnels moves last, and lets them finish', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 60, { sessionCount: 1 });
  await clock.run(MINUTE);
  for (const agent of fleet) (agent.uplinks[0] as FakeUplink).open = 1;
  plane.start('hub-c');
  await clock.run(20_000);
  assert.equal(plane.hubs.get('hub-c')?.uplinks.size, 0);
  await clock.run(31_000);
  fleet.forEach((agent, index) => {
    assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, 1));
  });
  const [mover] = fleet.filter((agent) => agent.uplinks.length === 2) as [Upkeep];
  const [old] = mover.uplinks as [FakeUplink];
  assert.ok(old.left);
  old.destroy(new Error('its tunnels are done'));
  await clock.run(1000);
  assert.deepEqual(
    mover.uplinks.map(({ serverId }) => serverId),
    ['hub-c'],
  );
});

test('a hub that comes back after a roll gets its sessions back, and then nothing moves any more', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b', 'hub-c');
  const fleet = agents(plane, 50);
  await clock.run(2 * MINUTE);
  plane.kill('hub-b');
  await clock.run(5000);
  for (const agent of fleet) assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-c']);
  plane.start('hub-b');
  await clock.run(MINUTE);
  fleet.forEach((agent, index) => {
    assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, 2));
  });
  const asked = plane.asked.length;
  await clock.run(10 * MINUTE);
  assert.equal(plane.asked.length, asked);
});

test('a better hub that cannot be connected to displaces nothing', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 20, { sessionCount: 1 });
  await clock.run(MINUTE);
  const uplinks = fleet.flatMap((agent) => agent.uplinks);
  plane.start('hub-c');
  plane.kill('hub-c');
  const before = plane.asked.length;
  await clock.run(5 * MINUTE);
  assert.deepEqual(
    fleet.flatMap((agent) => agent.uplinks),
    uplinks,
  );
  const movers = fleet.filter((_, index) => best(`agent-${index}`, plane, 1)[0] === 'hub-c').length;
  assert.ok(plane.asked.length - before <= movers * 32, 'tries are bounded');
  plane.start('hub-c');
  await clock.run(MINUTE);
  assert.equal(plane.hubs.get('hub-c')?.uplinks.size, movers);
});

test('while the registry is away nothing moves, for gateways would not learn of a new session', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 20);
  await clock.run(MINUTE);
  plane.current = false;
  plane.start('hub-c');
  await clock.run(MINUTE);
  assert.equal(plane.hubs.get('hub-c')?.uplinks.size, 0);
  plane.current = true;
  await clock.run(MINUTE);
  fleet.forEach((agent, index) => {
    assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, 2));
  });
});

test('a hub whose registry is away displaces nothing until it says otherwise', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 60, { sessionCount: 1 });
  await clock.run(MINUTE);
  plane.start('hub-c').current = false;
  await clock.run(2 * MINUTE);
  const movers = fleet.filter((_, index) => best(`agent-${index}`, plane, 1)[0] === 'hub-c');
  assert.ok(movers.length > 0);
  for (const agent of movers) assert.equal(hubsOf(agent).length, 2, 'the old session stays beside the new one');
  (plane.hubs.get('hub-c') as FakeHub).current = true;
  await clock.run(11_000);
  for (const agent of movers) assert.deepEqual(hubsOf(agent), ['hub-c']);
});

test('after the registry was away sessions move at the pace that they would have', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 300);
  await clock.run(MINUTE);
  plane.current = false;
  const hub = plane.start('hub-c');
  await clock.run(5 * MINUTE);
  assert.equal(hub.uplinks.size, 0);
  plane.current = true;
  await clock.run(41_000);
  const seconds = new Map<number, number>();
  for (const at of hub.accepted) seconds.set(Math.floor(at / 1000), (seconds.get(Math.floor(at / 1000)) ?? 0) + 1);
  assert.ok(Math.max(...seconds.values()) < fleet.length / 15, `${[...seconds.values()]}`);
  fleet.forEach((agent, index) => {
    assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, 2));
  });
});

test('a better hub that takes agents only to say that it goes is not moved to without a pause', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 20, { sessionCount: 1, rebalanceTime: 0 });
  await clock.run(MINUTE);
  const hub = plane.start('hub-c');
  hub.leaves = true;
  await clock.run(MINUTE);
  const movers = fleet.filter((_, index) => best(`agent-${index}`, plane, 1)[0] === 'hub-c').length;
  assert.ok(movers > 0);
  assert.ok(
    hub.accepted.length <= movers * 15,
    `${hub.accepted.length / movers} connections of each agent in a minute`,
  );
  for (const agent of fleet) assert.equal(hubsOf(agent).length, 1);
});
