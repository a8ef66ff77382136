import assert from 'node:assert/strict';
import type { Duplex } from 'node:stream';
import test from 'node:test';
import { redisMissing } from '@isthmus/directory/testing/servers';
import {
  type Back,
  type Destination,
  echo,
  type Front,
  type LogLine,
  type Program,
  peerFlags,
  Scope,
  type Split,
  split,
  startAgent,
  startGateway,
  startHub,
  until,
} from '../harness/index.ts';
import { adminOf, carries, Dialler, dial } from './dials.ts';

const skip = redisMissing();

async function hubIdOf({ program }: Back): Promise<string> {
  return String((await program.waitForLog(({ msg }) => msg === 'ready', { what: 'its id' })).hub);
}

async function sessionsOn(scope: Scope, program: Program): Promise<number> {
  return (await adminOf(scope, program).listSessions({})).sessions.length;
}

/** Returns the hub that the newest tunnel of a gateway runs through. */
async function hubOfNewest(scope: Scope, { program }: Front): Promise<string | undefined> {
  const { tunnels } = await adminOf(scope, program).listTunnels({});
  return tunnels.at(-1)?.hubId;
}

/** Opens a tunnel through each hub. */
async function tunnelThroughEach(scope: Scope, plane: Split, destination: Destination): Promise<Map<string, Duplex>> {
  const tunnels = new Map<string, Duplex>();
  const [gateway] = plane.gateways as [Front];
  for (let tries = 0; tries < 100 && tunnels.size < plane.hubs.length; tries++) {
    const tunnel = await dial(scope, gateway, 'connect', destination.authority);
    await carries(tunnel);
    const hub = (await hubOfNewest(scope, gateway)) as string;
    if (tunnels.has(hub)) tunnel.destroy();
    else tunnels.set(hub, tunnel);
  }
  return tunnels;
}

async function allHave(scope: Scope, programs: readonly Program[], sessions: number): Promise<void> {
  for (const program of programs) {
    const enough = async () => (await sessionsOn(scope, program)) === sessions;
    await until(enough, { what: `${sessions} sessions at ${program.name}` });
  }
}

/** Dials through every gateway while something happens, and some more afterwards. No dial may fail. */
async function undisturbed(
  scope: Scope,
  gateways: readonly Front[],
  destination: Destination,
  happens: () => Promise<void>,
): Promise<void> {
  const protocols = ['grpc', 'connect'] as const;
  const diallers = gateways.flatMap((gateway) =>
    protocols.map((protocol) => new Dialler(scope, gateway, protocol, destination.authority)),
  );
  const more = async () => {
    const before = diallers.map(({ dials }) => dials);
    const enough = () => diallers.every((dialler, index) => dialler.dials >= (before[index] as number) + 5);
    await until(enough, { what: 'five more dials of each caller' });
  };
  await more();
  await happens();
  await more();
  await Promise.all(diallers.map((dialler) => dialler.stop()));
  assert.deepEqual(
    diallers.flatMap(({ failures }) => failures.map(({ message }) => message)),
    [],
  );
}

test('a plane goes on while its parts leave and join', { skip }, async (t) => {
  await using scope = new Scope();
  const plane = await split(scope, { agents: 2 });
  const { gateways, redis, trust } = plane;
  const flags = { 'redis-url': redis.url, plane: 'test' };
  const fronts = gateways.map(({ program }) => program);
  const [first, second] = plane.hubs as [Back, Back];
  const [firstId, secondId] = [await hubIdOf(first), await hubIdOf(second)];
  const destination = await echo(scope);
  let third: Back;
  await allHave(scope, fronts, 4);

  await t.test('when a hub is killed its tunnels go on without waiting for a PING, and no dial fails', async () => {
    const tunnels = await tunnelThroughEach(scope, plane, destination);
    let before: readonly number[] = [];
    await undisturbed(scope, gateways, destination, async () => {
      // A link that a busy machine left silent for too long ended before, and is there again.
      before = fronts.map(({ logs }) => logs.length);
      await first.program.kill();
      await carries(tunnels.get(firstId) as Duplex);
    });
    for (const [index, { logs }] of fronts.entries()) {
      const isEnd = (line: LogLine) => line.msg === 'hub connection closed' && line.hub === firstId;
      const { reason } = await until(() => logs.slice(before[index]).find(isEnd), { what: 'the end of the link' });
      assert.match(String(reason), /^hub .*: ./);
      assert.doesNotMatch(String(reason), /PING/);
    }
    await carries(tunnels.get(secondId) as Duplex);
    for (const tunnel of tunnels.values()) tunnel.destroy();
  });

  await t.test('gateways use a new hub, and so do agents that lack a session', async () => {
    third = await startHub(scope, trust, flags);
    await allHave(scope, [third.program], 2);
    await allHave(scope, fronts, 4);
    for (const { program } of gateways) {
      const links = async () => (await program.metric('isthmus_hub_links')).get('{}');
      await until(async () => (await links()) === 2, { what: 'links to the two hubs that live' });
    }
  });

  await t.test('a hub that drains fails no dial, hands its tunnels over, and ends', async () => {
    const tunnels = await tunnelThroughEach(scope, { ...plane, hubs: [second, third] }, destination);
    const tunnel = tunnels.get(secondId) as Duplex;
    await undisturbed(scope, gateways, destination, async () => {
      second.program.signal('SIGTERM');
      await second.program.waitForLog((line) => line.msg === 'stopping', { what: 'the signal' });
      // Each agent has a session to the remaining hub already, so the draining hub's sessions take no more dials.
      await allHave(scope, fronts, 2);
    });
    assert.deepEqual(await second.program.ended(), { code: 0, signal: null });
    await carries(tunnel);
    for (const each of tunnels.values()) each.destroy();
    await allHave(scope, fronts, 2);
  });

  await t.test('no dial fails when an agent is killed', async () => {
    const gone = await startAgent(scope, trust, third.agentPort, { 'agent-id': 'short-lived' });
    await allHave(scope, fronts, 3);
    await undisturbed(scope, gateways, destination, () => gone.kill());
    await allHave(scope, fronts, 2);
  });

  await t.test('dials go on without Redis, and the plane converges when Redis comes back empty', async () => {
    await undisturbed(scope, gateways, destination, async () => {
      await redis.kill();
      for (const program of fronts) {
        await program.waitForLog((line) => line.msg === 'registry is down', { what: 'the outage' });
      }
    });
    for (const program of fronts) await program.waitReady();
    // During the outage a gateway, a hub and an agent start. The gateway must learn of all of them afterwards.
    const late = await startGateway(scope, trust, { ...flags, ...(await peerFlags(trust)) });
    assert.equal((await late.program.get('/readyz')).status, 500);
    assert.match((await late.program.get('/readyz')).body, /no copy of the registry yet/);
    const fourth = await startHub(scope, trust, flags);
    await startAgent(scope, trust, fourth.agentPort, { 'agent-id': 'late', 'session-count': 1 });
    await allHave(scope, [fourth.program], 1);
    await redis.restart();
    await undisturbed(scope, gateways, destination, () => late.program.waitReady());
    for (const program of [...fronts, late.program]) {
      const knows = async () =>
        (await adminOf(scope, program).listSessions({})).sessions.some(({ agentId }) => agentId === 'late');
      await until(knows, { what: 'the agent that came meanwhile' });
    }
    await carries(await dial(scope, late, 'mtls', destination.authority));
  });
});
