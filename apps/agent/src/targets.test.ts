import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import type { HubMember } from '@isthmus/transport';
import { ConfiguredServer, Reconnect, type Resolve, rank } from './reconnect.ts';

const SECOND = 1000;

function hub(hubId: string, address = `${hubId}:1`): HubMember {
  return { hubId, address, zone: '', draining: false, generation: 1 };
}

function known(resolve: Resolve = async (host) => [host]) {
  const clock = new FakeClock();
  const reconnect = new Reconnect({ syncInterval: SECOND, syncIntervalCap: 8 * SECOND, rebalanceTime: 0, clock });
  return { clock, reconnect, server: new ConfiguredServer('server', 1, resolve) };
}

type Agent = ReturnType<typeof known>;

function ranked({ reconnect, server }: Agent, hubs: readonly HubMember[], connected = true, configuredFirst = false) {
  return rank(hubs, [server], reconnect, { connected, configuredFirst });
}

/** Names in order; those that have to wait in brackets. */
function order(agent: Agent, hubs: readonly HubMember[], connected = true): string {
  return ranked(agent, hubs, connected)
    .map(({ place, wait }) => ({ name: place.replace(/:1$/, ''), wait }))
    .map(({ name, wait }) => (wait > 0 ? `(${name})` : name))
    .join(' ');
}

/** An attempt to reach this address fails. */
function fail({ reconnect }: Agent, place: string, connected = true, refused = false): void {
  const attempt = reconnect.begin({ place }, connected);
  reconnect.end(attempt);
  reconnect.failed(attempt, place, connected, refused);
}

test('hubs come in the order they are given, and the configured server last, without those that are asked already', () => {
  const agent = known();
  assert.equal(order(agent, [hub('a'), hub('b', ''), hub('c')]), 'a c server');
  agent.reconnect.begin({ place: 'a:1' }, true);
  agent.reconnect.begin({ place: agent.server.place, configured: agent.server }, true);
  assert.equal(order(agent, [hub('a')]), '');
});

test('where a session was lost is tried last, and waits when the session did not last', () => {
  const agent = known();
  const hubs = [hub('a'), hub('b')];
  agent.reconnect.lost('a:1', 60 * SECOND, true);
  assert.equal(order(agent, hubs), 'b a server');
  agent.reconnect.lost('b:1', 100, true);
  assert.equal(order(agent, hubs), 'a (b) server');
});

test('an agent without a session tries again what failed after all else, also when it need not wait any more', async () => {
  const agent = known();
  const hubs = [hub('a'), hub('b'), hub('c')];
  agent.reconnect.lost('b:1', 60 * SECOND, false);
  fail(agent, 'a:1', false, true);
  await agent.clock.run(SECOND);
  assert.equal(order(agent, hubs, false), 'c b server a');
  fail(agent, 'server:1', false, true);
  await agent.clock.run(SECOND);
  assert.equal(order(agent, hubs, false), 'c b a server');
  assert.equal(order(agent, hubs, true), 'a c b server', 'one that has a session keeps to the order of hubs');
  agent.reconnect.lost('c:1', 60 * SECOND, false);
  assert.equal(order(agent, hubs, false), 'a b c server', 'all is worth a try anew');
});

test('of many addresses that fail none is left out', async () => {
  const agent = known();
  const hubs = Array.from({ length: 20 }, (_, index) => hub(`h${index}`));
  const asked = new Map<string, number>();
  for (let attempt = 0; attempt < 210; attempt++) {
    const [next] = ranked(agent, hubs, false).filter(({ wait }) => wait <= 0);
    if (next) {
      asked.set(next.place, (asked.get(next.place) ?? 0) + 1);
      fail(agent, next.place);
    }
    await agent.clock.run(SECOND);
  }
  assert.equal(asked.size, 21);
  const counts = [...asked.values()];
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 2, `${counts}`);
});

test('while what is known of hubs is old the configured server comes first', () => {
  const agent = known();
  const first = ranked(agent, [hub('a'), hub('b')], false, true);
  assert.deepEqual(
    first.map(({ place }) => place),
    ['server:1', 'a:1', 'b:1'],
  );
  fail(agent, 'server:1', false);
  const [again] = ranked(agent, [hub('a'), hub('b')], false, true);
  assert.equal(again?.place, 'server:1', 'also when it failed: many old hubs may hang');
});

test('with the last session gone no address waits, but for one that ended it at once', () => {
  const agent = known();
  const hubs = [hub('a'), hub('b')];
  fail(agent, 'a:1');
  agent.reconnect.lost('b:1', 100, false);
  assert.equal(order(agent, hubs, false), 'server (a) (b)');
  agent.reconnect.lost('b:1', 5 * SECOND, false);
  assert.equal(order(agent, hubs, false), 'a b server');
});

test('the addresses of a name take turns, and one that failed waits', async () => {
  const agent = known(async () => ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  const next = async () => (await agent.server.next(agent.reconnect, true)).address;
  const seen: string[] = [];
  for (let turn = 0; turn < 3; turn++) seen.push(await next());
  assert.deepEqual(seen.sort(), ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  fail(agent, '10.0.0.2:1');
  for (let turn = 0; turn < 6; turn++) assert.notEqual(await next(), '10.0.0.2');
});

test('a name that does not resolve in time fails, or leads where it did before', async (context) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  context.after(() => mock.timers.reset());
  let answers = false;
  const agent = known(() => (answers ? Promise.resolve(['10.0.0.1']) : new Promise(() => {})));
  const next = async () => (await agent.server.next(agent.reconnect, true)).address;
  const late = assert.rejects(next(), /server did not resolve within 5 s/);
  mock.timers.tick(5 * SECOND);
  await late;
  answers = true;
  assert.equal(await next(), '10.0.0.1');
  answers = false;
  const again = next();
  mock.timers.tick(5 * SECOND);
  assert.equal(await again, '10.0.0.1');
});

test('a hub that was lost is as good as any when it has started anew', () => {
  const agent = known();
  const hubs = [hub('a'), hub('b')];
  agent.reconnect.lost('a:1', 60 * SECOND, true);
  assert.equal(order(agent, hubs), 'b a server');
  agent.reconnect.started(['a:1']);
  assert.equal(order(agent, hubs), 'a b server');
});

test('an agent without a session asks those addresses of a name last that failed last', async () => {
  const agent = known(async () => ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  for (const address of ['10.0.0.3', '10.0.0.1', '10.0.0.2']) {
    fail(agent, `${address}:1`, false);
    await agent.clock.run(SECOND);
  }
  assert.equal((await agent.server.next(agent.reconnect, false)).address, '10.0.0.3');
});

test('a configured server that leads to nothing new waits, but not for an agent without a session', () => {
  const agent = known();
  agent.reconnect.missed({ place: agent.server.place, configured: agent.server }, false);
  assert.equal(order(agent, [], true), '(server)');
  assert.equal(order(agent, [], false), 'server');
});

test('each configured server fails and misses alone', async () => {
  const { reconnect } = known();
  const servers = ['a', 'b', 'c'].map((host) => new ConfiguredServer(host, 1, async () => [host]));
  const [first, second] = servers as [ConfiguredServer, ConfiguredServer];
  for (const server of servers) await server.next(reconnect, true);
  fail({ reconnect } as Agent, first.place);
  reconnect.missed({ place: second.place, configured: second }, false);
  const free = rank([], servers, reconnect, { connected: true, configuredFirst: false }).filter(
    ({ wait }) => wait <= 0,
  );
  assert.deepEqual(
    free.map(({ place }) => place),
    ['c:1'],
  );
});
