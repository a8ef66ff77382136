import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import { TRANSPORT } from '@isthmus/transport';
import { planeEvents } from '@isthmus/tunnel';
import { ranking } from './membership.ts';
import {
  agents,
  best,
  FakeHub,
  FakePlane,
  FakeUplink,
  hubsOf,
  MINUTE,
  planeOf,
  uplinkTo,
} from './testing/fake-plane.ts';
import type { Uplink } from './uplink.ts';

test('an agent that knows one address connects to it at once, and to a second hub a little later', async () => {
  const { clock, plane } = planeOf('a', 'b', 'c');
  const agent = plane.agent('agent-1', 'a');
  await clock.run(0);
  assert.deepEqual(hubsOf(agent), ['a']);
  await clock.run(2000);
  assert.equal(hubsOf(agent).length, 2);
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), best('agent-1', plane, 2));
});

test('the only hub of an agent says that it goes: another is connected at once', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const agent = plane.agent('agent-1', 'hub-a', { sessionCount: 1 });
  await clock.run(MINUTE);
  const [only] = agent.uplinks as [FakeUplink];
  only.hubLeaves();
  await clock.run(0);
  assert.equal(hubsOf(agent).length, 1);
  assert.notEqual(hubsOf(agent)[0], only.serverId);
});

test('an address that a hub reports and that leads to a server of another plane gives no session, and fails by name', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const elsewhere = planeOf('theirs', 'theirs-too').plane;
  const events = planeEvents();
  const failures: string[] = [];
  events.on('server:failure', (address, _at, { message }) => failures.push(`${address}: ${message}`));
  let wrong = true;
  const agent = plane.agent('agent-1', 'hub-a', {
    events,
    async connect(to, hear) {
      if (to.address !== 'hub-b' || !wrong) return plane.connect(to, hear);
      const other = (await elsewhere.connect({ ...to, address: 'theirs' }, hear)) as FakeUplink;
      // As on a link, whose first message may come with its answer.
      const hubs = ['theirs', 'theirs-too'].map((hubId) => ({ hubId, address: `${hubId}:1`, zone: '' }));
      const message = {
        type: 'membership',
        current: true,
        hubs: hubs.map((hub) => ({ ...hub, draining: false, generation: 9 })),
      };
      hear.membership(message as Parameters<typeof hear.membership>[0]);
      return Object.assign(other, { plane: 'q' });
    },
  });
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), ['hub-a']);
  assert.deepEqual(
    new Set(failures),
    new Set(['hub-b:1: server theirs of plane q answers where a hub of plane p should']),
  );
  assert.ok(failures.length > 1 && failures.length < 20, `${failures.length} attempts in a minute`);
  assert.deepEqual([...new Set(plane.asked)], ['hub-a'], 'what the other server said of hubs was believed');
  wrong = false;
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
  agent.stop();
});

/** The hubs that `again` names answer as hub-c. */
function underAnotherId(plane: FakePlane, again: (address: string) => boolean) {
  return {
    async connect(...[to, hear]: Parameters<FakePlane['connect']>) {
      const uplink = await plane.connect(to, hear);
      return again(to.address) ? Object.assign(uplink, { serverId: 'hub-c' }) : uplink;
    },
  };
}

test('a hub that starts again at its address under another id has its agents back', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  let again = false;
  const agent = plane.agent(
    'agent-1',
    'hub-a',
    underAnotherId(plane, (address) => address === 'hub-b' && again),
  );
  await clock.run(MINUTE);
  const restarted = () => {
    plane.kill('hub-b');
    plane.start('hub-b');
    again = true;
  };
  restarted();
  await clock.run(MINUTE);
  const member = { hubId: 'hub-c', address: 'hub-b:1', zone: '', draining: false, generation: 1 };
  plane.say({ type: 'membership-change', current: true, changed: [member], gone: ['hub-b'] });
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-c']);
  agent.stop();
});

test('an agent without a session takes whoever answers for its plane', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  let again = false;
  const agent = plane.agent(
    'agent-1',
    'hub-a',
    underAnotherId(plane, () => again),
  );
  await clock.run(MINUTE);
  plane.kill('hub-a');
  plane.kill('hub-b');
  plane.start('hub-b');
  again = true;
  await clock.run(5000);
  assert.deepEqual(hubsOf(agent), ['hub-c']);
  agent.stop();
});

test('an agent that loses its last session tries another address first, at once', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const agent = plane.agent('agent-1', 'hub-a', { sessionCount: 1 });
  await clock.run(MINUTE);
  const [hub] = hubsOf(agent) as [string];
  plane.kill(hub);
  await clock.run(0);
  assert.deepEqual(hubsOf(agent), [hub === 'hub-a' ? 'hub-b' : 'hub-a']);
});

for (const known of ['hubs', 'addresses of a name']) {
  test(`an agent without a session asks all ${known} before it asks one again that refused it slowly`, async () => {
    const hubIds = [...'abcdefgh'];
    const { clock, plane } = planeOf(...hubIds);
    const asked: string[] = [];
    let refuses = known !== 'hubs';
    const connect: FakePlane['connect'] = async (to, hear) => {
      if (!refuses) return plane.connect(to, hear);
      asked.push(to.address);
      // Longer than the pause after the first refusals.
      await new Promise<void>((resolve) => clock.after(60, resolve));
      throw Object.assign(new Error('connection refused'), { code: 'ECONNREFUSED' });
    };
    const agent = plane.agent('agent-1', 'a', {
      sessionCount: 1,
      connect,
      ...(refuses && { server: { hosts: ['name'], port: 1 }, resolve: async () => hubIds }),
    });
    if (!refuses) await clock.run(MINUTE);
    refuses = true;
    for (const hubId of hubsOf(agent)) plane.kill(hubId);
    await clock.run(2000);
    assert.deepEqual(new Set(asked.slice(0, hubIds.length)), new Set(hubIds), `${asked}`);
    agent.stop();
  });
}

test('hubs that are killed in turn every 5 s leave no agent without a session', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const fleet = agents(plane, 100);
  await clock.run(MINUTE);
  for (let kill = 0; kill < 12; kill++) {
    const hubId = kill % 2 === 0 ? 'hub-a' : 'hub-b';
    plane.kill(hubId);
    await clock.run(1500);
    assert.ok(fleet.every((agent) => hubsOf(agent).length > 0));
    plane.start(hubId);
    await clock.run(3500);
    for (const agent of fleet) assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
  }
});

test('agents that lost one of two hubs come to the third spread over two seconds', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b', 'hub-c');
  const fleet = agents(plane, 400);
  await clock.run(2 * MINUTE);
  const lost = plane.hubs.get('hub-c')?.uplinks.size as number;
  const accepted = () => [...plane.hubs.values()].reduce((sum, hub) => sum + hub.accepted.length, 0);
  plane.kill('hub-c');
  const counts: number[] = [];
  for (let tenth = 0; tenth < 20; tenth++) {
    const before = accepted();
    await clock.run(100);
    counts.push(accepted() - before);
  }
  assert.ok(Math.max(...counts) < lost / 8, `${counts}`);
  assert.equal(
    counts.reduce((sum, count) => sum + count, 0),
    lost,
  );
  for (const agent of fleet) assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
});

test('agents that lost a hub with many links come to others spread over as long as its handshakes take, also if it restarts', async () => {
  for (const restarts of [false, true]) {
    const { clock, plane } = planeOf('hub-a', 'hub-b');
    for (const hub of plane.hubs.values()) hub.restSeconds = 10;
    const fleet = agents(plane, 200);
    await clock.run(2 * MINUTE);
    const hub = plane.hubs.get('hub-b') as FakeHub;
    hub.accepted.length = 0;
    const before = clock.now();
    plane.kill('hub-b');
    await clock.run(restarts ? 500 : 0);
    if (!restarts) plane.start('hub-c');
    else plane.start('hub-b');
    await clock.run(20_500);
    const accepted = (plane.hubs.get(restarts ? 'hub-b' : 'hub-c') as FakeHub).accepted.map((at) => at - before);
    assert.equal(accepted.length, 200, `${accepted.length} are back after 21 s`);
    for (const from of [0, 5000, 10_000, 15_000]) {
      const count = accepted.filter((at) => at >= from && at < from + 5000).length;
      assert.ok(count > 25 && count < 75, `${count} of 200 after ${from} ms`);
    }
    for (const agent of fleet) assert.equal(hubsOf(agent).length, 2);
  }
});

test('agents whose connection took long come back spread over as long', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b');
  const connect: FakePlane['connect'] = async (server, hear) => {
    await new Promise<void>((resolve) => clock.after(8000, resolve));
    return plane.connect(server, hear);
  };
  const fleet = agents(plane, 200, { connect });
  await clock.run(2 * MINUTE);
  plane.kill('hub-b');
  plane.start('hub-b');
  const hub = plane.hubs.get('hub-b') as FakeHub;
  hub.accepted.length = 0;
  const before = clock.now();
  await clock.run(17_000);
  assert.equal(hub.accepted.length, 200);
  const late = hub.accepted.filter((at) => at - before > 12_000).length;
  assert.ok(late > 60 && late < 140, `${late} of 200 in the second half`);
  for (const agent of fleet) agent.stop();
});

test('behind one address an agent collects as many hubs as it should have, and a new one', async () => {
  const clock = new FakeClock();
  const plane = new FakePlane(clock, true);
  for (const hubId of ['hub-a', 'hub-b']) plane.start(hubId);
  plane.beat(10_000);
  const fleet = Array.from({ length: 50 }, (_, index) => plane.agent(`agent-${index}`, 'balancer'));
  await clock.run(MINUTE);
  for (const agent of fleet) assert.deepEqual(hubsOf(agent), ['hub-a', 'hub-b']);
  const asked = plane.asked.length;
  plane.start('hub-c');
  await clock.run(5 * MINUTE);
  fleet.forEach((agent, index) => {
    assert.deepEqual(hubsOf(agent), best(`agent-${index}`, plane, 2));
  });
  const moved = fleet.filter((_, index) => best(`agent-${index}`, plane, 2).includes('hub-c')).length;
  assert.ok(plane.asked.length - asked < moved * 8, `${(plane.asked.length - asked) / moved} tries a move`);
});

test('an agent that starts is connected to each of its servers at once, and comes back to one a little later', async () => {
  const clock = new FakeClock();
  const servers = ['a', 'b', 'c'].map((id) => new FakeHub(id));
  let turn = 0;
  const connect: FakePlane['connect'] = async (server, hear) => {
    const next = servers[turn++ % servers.length] as FakeHub;
    return new FakeUplink(next, server, hear, { plane: '', serverCount: servers.length });
  };
  const serverCount = (uplinks: readonly Uplink[]) => uplinks.at(-1)?.serverCount ?? 1;
  const agent = new FakePlane(clock).agent('agent-1', 'balancer', { connect, serverCount });
  await clock.run(0);
  assert.deepEqual(hubsOf(agent), ['a', 'b', 'c']);
  uplinkTo(agent, 'a').destroy(new Error('connection closed'));
  await clock.run(0);
  assert.deepEqual(hubsOf(agent), ['b', 'c']);
  await clock.run(2000);
  assert.deepEqual(hubsOf(agent), ['a', 'b', 'c']);
});

test('a server that was away for long is found again, though its name leads to others that are connected', async () => {
  const clock = new FakeClock();
  const servers = new Map(['a', 'b', 'c'].map((id) => [id, new FakeHub(id)]));
  const connect: FakePlane['connect'] = async (server, hear) => {
    const hub = servers.get(server.address) as FakeHub;
    if (!hub.up) throw new Error('connection refused');
    return new FakeUplink(hub, server, hear, { plane: '', serverCount: servers.size });
  };
  const serverCount = () => servers.size;
  const resolve = async () => [...servers.keys()];
  const agent = new FakePlane(clock).agent('agent-1', 'name', { connect, serverCount, resolve });
  await clock.run(MINUTE);
  const back = servers.get('b') as FakeHub;
  back.up = false;
  uplinkTo(agent, 'b').destroy(new Error('connection closed'));
  await clock.run(10 * MINUTE);
  assert.deepEqual(hubsOf(agent), ['a', 'c']);
  back.up = true;
  // Each address has its turn, and no pause is longer than 10 s.
  await clock.run(40_000);
  assert.deepEqual(hubsOf(agent), ['a', 'b', 'c']);
});

test('an agent with several configured servers connects to each, and reports the one that does not resolve by its name', async () => {
  const clock = new FakeClock();
  const plane = new FakePlane(clock);
  const servers = new Map(['a', 'b', 'c'].map((id) => [id, new FakeHub(id)]));
  const hosts = [...servers.keys(), 'lost'];
  const resolve = async (host: string) => {
    if (host === 'lost') throw new Error(`${host} is no name`);
    return [host];
  };
  const connect: FakePlane['connect'] = async (server, hear) => {
    plane.asked.push(server.address);
    const hub = servers.get(server.address) as FakeHub;
    if (!hub.up) throw new Error('connection refused');
    return new FakeUplink(hub, server, hear, { plane: '', serverCount: 1 });
  };
  const events = planeEvents();
  const failed = new Set<string>();
  events.on('server:failure', (address, _at, { message }) => failed.add(`${address}: ${message}`));
  const server = { hosts, port: 1 };
  const agent = plane.agent('agent-1', '', { connect, events, server, resolve, serverCount: () => hosts.length });
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), ['a', 'b', 'c']);
  assert.deepEqual([...failed], ['lost:1: lost is no name']);
  assert.equal(agent.wanted, 4);
  // One that comes back is asked by its own name, beside others that lead to nothing new.
  const back = servers.get('b') as FakeHub;
  back.up = false;
  uplinkTo(agent, 'b').destroy(new Error('connection closed'));
  await clock.run(MINUTE);
  assert.deepEqual(hubsOf(agent), ['a', 'c']);
  back.up = true;
  await clock.run(12_000);
  assert.deepEqual(hubsOf(agent), ['a', 'b', 'c']);
});

test('hubs behind one address are rolled one after the other without an agent that waits', async () => {
  const clock = new FakeClock();
  const plane = new FakePlane(clock, true);
  for (const hubId of ['hub-a', 'hub-b', 'hub-c']) plane.start(hubId);
  plane.beat(10_000);
  // The balancer leads to a hub that does not listen any more, once.
  let refusals = 0;
  const connect: FakePlane['connect'] = async (server, hear) => {
    if (refusals-- > 0) throw new Error('connection refused');
    return plane.connect(server, hear);
  };
  // Nothing moves meanwhile.
  const rebalanceTime = 60 * MINUTE;
  const agent = plane.agent('agent-1', 'balancer', { sessionCount: 1, rebalanceTime, connect });
  await clock.run(5 * MINUTE);
  for (let roll = 0; roll < 12; roll++) {
    const [session] = agent.uplinks.filter(({ leaving }) => !leaving) as [FakeUplink];
    refusals = 1;
    session.hubLeaves();
    await clock.run(110);
    assert.equal(hubsOf(agent).length, 1, `roll ${roll}`);
    session.destroy(new Error('drained'));
    await clock.run(5000);
  }
});

test('an attempt that hangs does not hold up another address', async () => {
  const { clock, plane } = planeOf('hub-a', 'hub-b', 'hub-c');
  const hanging = new Set<string>();
  const agent = plane.agent('agent-1', 'hub-a', {
    sessionCount: 1,
    connect: (server, hear) => (hanging.has(server.address) ? new Promise(() => {}) : plane.connect(server, hear)),
  });
  await clock.run(MINUTE);
  const [hub] = hubsOf(agent) as [string];
  const others = [...plane.hubs.keys()].filter((hubId) => hubId !== hub);
  const [first, second] = ranking(
    { agentId: 'agent-1', zone: '' },
    others.map((hubId) => ({ hubId, address: '', zone: '', draining: false, generation: 1 })),
  );
  hanging.add(first?.hubId as string);
  plane.kill(hub);
  await clock.run(900);
  assert.deepEqual(hubsOf(agent), []);
  await clock.run(200);
  assert.deepEqual(hubsOf(agent), [second?.hubId]);
  assert.equal(uplinkTo(agent, second?.hubId as string).leaving, false);
});

test('configured servers take turns, and agents that are configured alike do not all begin with the same one', async () => {
  const clock = new FakeClock();
  const plane = new FakePlane(clock);
  const hosts = ['a', 'b', 'c'];
  const begun = new Set<string>();
  for (let index = 0; index < 60; index++) {
    const asked: string[] = [];
    const connect: FakePlane['connect'] = ({ address }) => {
      asked.push(address);
      return new Promise(() => {});
    };
    const resolve = async (host: string) => [host];
    const agent = plane.agent(`agent-${index}`, '', { connect, resolve, server: { hosts, port: 1 } });
    await clock.run(MINUTE);
    agent.stop();
    assert.deepEqual(new Set(asked.slice(0, 3)), new Set(hosts));
    assert.equal(asked[3], asked[0]);
    begun.add(asked[0] as string);
  }
  assert.equal(begun.size, 3);
});

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
  await clock.run(TRANSPORT.membershipTtlMs);
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
    await clock.run(outage === 'short' ? TRANSPORT.membershipTtlMs / 2 : 20 * MINUTE);
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
