import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import type { HubMember } from '@isthmus/transport';
import { ConfiguredServer, Reconnect, type ReconnectOptions, type Resolve } from './reconnect.ts';

const SECOND = 1000;
const SERVER = new ConfiguredServer('server', 1, async (host) => [host]);
const CONFIGURED = { place: SERVER.place, configured: SERVER };

function made(clock = new FakeClock(), more: Partial<ReconnectOptions> = {}): Reconnect {
  return new Reconnect({
    syncInterval: SECOND,
    syncIntervalCap: 8 * SECOND,
    rebalanceTime: 30 * SECOND,
    clock,
    ...more,
  });
}

/** An attempt to reach this address fails. */
function fail(reconnect: Reconnect, place: string, connected = true, refused = false): void {
  const attempt = reconnect.begin({ place }, connected);
  reconnect.end(attempt);
  reconnect.failed(attempt, place, connected, refused);
}

test('without a session an agent seeks at once, with one at a random time within two seconds', () => {
  const clock = new FakeClock();
  const waits = Array.from({ length: 1000 }, () => made(clock).wait(1, true));
  assert.equal(made(clock).wait(2, false), 0);
  assert.ok(waits.every((wait) => wait >= 0 && wait < 2000));
  for (const half of [waits.filter((wait) => wait < 1000), waits.filter((wait) => wait >= 1000)]) {
    assert.ok(half.length > 400, `${half.length} of 1000 in this second`);
  }
});

test('the time that was drawn stands until something changes', async () => {
  const clock = new FakeClock(20_000);
  const reconnect = made(clock);
  const wait = reconnect.wait(1, true);
  await clock.run(100);
  assert.ok(Math.abs(reconnect.wait(1, true) - (wait - 100)) < 1e-6);
  reconnect.anew();
  assert.notEqual(reconnect.wait(1, true), wait - 100);
});

test('attempts that hang begin after 0, 1, 3 and 7 s, and there is no fifth', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const begun: string[] = [];
  for (let second = 0; second < 30; second++) {
    if (reconnect.wait(1, false) === 0) {
      reconnect.begin({ place: `hangs:${second + 1}` }, false);
      begun.push(`hangs:${second + 1}`);
    }
    await clock.run(1000);
  }
  assert.deepEqual(begun, ['hangs:1', 'hangs:2', 'hangs:4', 'hangs:8']);
  const hanging = begun.map((address) => hub(address, address));
  assert.deepEqual(reconnect.targets(hanging, [], false), [], 'a hub that hangs is not asked twice');
});

test('as many attempts at once as sessions are missing', () => {
  const reconnect = made();
  for (const expected of [0, 0, 1000]) {
    assert.equal(reconnect.wait(2, false), expected);
    if (expected === 0) reconnect.begin(CONFIGURED, false);
  }
});

test('behind a balancer that hangs the next attempt may lead elsewhere', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  reconnect.begin(CONFIGURED, false);
  assert.deepEqual(reconnect.targets([], [SERVER], false), []);
  await clock.run(1000);
  assert.equal(reconnect.targets([], [SERVER], false).length, 1);
});

test('a list of addresses that all fail is gone through fast, and then slowly', () => {
  const reconnect = made();
  const waits = Array.from({ length: 12 }, () => {
    const wait = reconnect.wait(1, false);
    const attempt = reconnect.begin(CONFIGURED, false);
    reconnect.end(attempt);
    reconnect.failed(attempt, 'server:1', false);
    return wait;
  });
  assert.deepEqual(waits, [...Array(9).fill(0), 250, 250, 250]);
  reconnect.reached('a:1');
  assert.equal(reconnect.wait(1, false), 0);
});

test('an agent that has a session makes one attempt in fifteen seconds, and gives it time', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const begun: number[] = [];
  for (let second = 0; second < 40; second++) {
    if (reconnect.wait(1, true) === 0) {
      assert.equal(reconnect.begin({ place: `slow:${second + 1}` }, true).timeout, 40_000);
      begun.push(second);
    }
    await clock.run(1000);
  }
  assert.equal(begun.length, 3);
  const [first = 0, second = 0, third = 0] = begun;
  assert.deepEqual([second - first, third - second], [15, 15]);
});

test('an agent that loses its last session meanwhile waits for none of the attempts that it was patient with', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  for (let second = 0; second < 30; second++) {
    if (reconnect.wait(2, true) === 0) reconnect.begin({ place: `hangs:${second + 1}` }, true);
    await clock.run(1000);
  }
  assert.equal(reconnect.pending.length, 4);
  reconnect.lost('a:1', 60 * SECOND, false);
  assert.equal(reconnect.wait(2, false), 0);
  reconnect.begin({ place: 'well:1' }, false);
  assert.equal(reconnect.wait(2, false), 0, 'as many at once as are missing');
  const hanging = reconnect.pending.map(({ place }) => hub(place, place));
  assert.deepEqual(reconnect.targets(hanging, [], false), [], 'hubs that hang are not asked twice');
});

test('each attempt that takes too long gives the next one twice the time, up to a bound', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const timeouts: number[] = [];
  for (let tried = 0; tried < 4; tried++) {
    const attempt = reconnect.begin(CONFIGURED, false);
    timeouts.push(attempt.timeout);
    await clock.run(attempt.timeout);
    reconnect.end(attempt);
    reconnect.failed(attempt, 'server:1', false);
  }
  assert.deepEqual(timeouts, [10_000, 20_000, 40_000, 40_000]);
  reconnect.reached('a:1');
  assert.equal(reconnect.begin(CONFIGURED, false).timeout, 10_000);
});

test('an address that fails waits ever longer, alone, until its hub starts anew', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  for (let failure = 0; failure < 6; failure++) {
    fail(reconnect, 'a:1');
    assert.ok(reconnect.addresses.wait('b:1') <= 0);
    const wait = reconnect.addresses.wait('a:1');
    const ceiling = Math.min(8, 2 ** failure) * SECOND;
    assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${failure + 1} failures`);
    await clock.run(wait);
    assert.ok(reconnect.addresses.wait('a:1') <= 0);
  }
  fail(reconnect, 'a:1');
  reconnect.started(['a:1']);
  assert.ok(reconnect.addresses.wait('a:1') <= 0);
  fail(reconnect, 'a:1');
  assert.ok(reconnect.addresses.wait('a:1') <= SECOND);
});

test('a server that lets an agent in to say that it goes waits like one that fails', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const wait = () => reconnect.addresses.wait('a:1');
  reconnect.lost('a:1', 2 * SECOND, true, true);
  assert.ok(wait() <= 0, 'a server that is rolled did its work');
  for (const ceiling of [1, 2, 4]) {
    reconnect.lost('a:1', 100, true, true);
    assert.ok(wait() >= ceiling * 500 - 100 && wait() <= ceiling * SECOND - 100, `${wait()} of ${ceiling} s`);
    await clock.run(wait());
  }
  reconnect.lost('a:1', 2 * SECOND, true, true);
  assert.ok(wait() <= 0);
});

for (const { refused, syncInterval, ceilings } of [
  // From then on as often, because callers may wait for it.
  { refused: true, syncInterval: SECOND, ceilings: [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000] },
  { refused: true, syncInterval: 10, ceilings: [10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000] },
  { refused: false, syncInterval: SECOND, ceilings: [50, 100, 200, 400, 800, 1600, 3200, 6400, 8000, 8000] },
]) {
  const name = refused ? 'where nobody listens yet' : 'where a server fails';
  test(`${name}, an agent without a session asks at once and then ever more slowly, from ${syncInterval} ms`, () => {
    const reconnect = made(new FakeClock(), { syncInterval });
    ceilings.forEach((ceiling, before) => {
      fail(reconnect, 'a:1', false, refused);
      const wait = reconnect.addresses.wait('a:1');
      assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${before} failures`);
    });
  });
}

test('a configured server that leads to nothing new is asked ever more slowly, and more slowly yet if the agent hears of new ones', () => {
  const reconnect = made();
  const wait = () => reconnect.misses.wait(CONFIGURED.place);
  for (const ceiling of [1, 2, 4, 8, 16, 32, 60, 60]) {
    reconnect.missed(CONFIGURED, true);
    assert.ok(wait() >= ceiling * 500 && wait() <= ceiling * SECOND, `${wait()} of ${ceiling} s`);
  }
  reconnect.missed(CONFIGURED, false);
  assert.ok(wait() > 0 && wait() <= 8 * SECOND, 'an agent that nobody tells of new servers goes on');
  reconnect.reached('a:1');
  assert.ok(wait() <= 0);
});

test('only so many addresses are remembered', () => {
  const reconnect = made();
  for (let port = 1; port <= 2000; port++) fail(reconnect, `a:${port}`);
  assert.equal(reconnect.addresses.size, 1024);
  assert.ok(reconnect.addresses.has('a:2000'));
});

test('a server that ends each session soon is asked ever more slowly, also by an agent that has no other', async () => {
  const clock = new FakeClock();
  const reconnect = made(clock);
  const waits: number[] = [];
  for (let session = 0; session < 8; session++) {
    reconnect.reached('a:1');
    await clock.run(1.5 * SECOND);
    reconnect.lost('a:1', 1.5 * SECOND, false);
    waits.push(Math.max(0, reconnect.addresses.wait('a:1')));
    await clock.run(waits.at(-1) as number);
  }
  assert.equal(waits[0], 0, 'the first one is replaced at once');
  for (const wait of waits.slice(3)) assert.ok(wait >= 2.5 * SECOND && wait <= 6.5 * SECOND, `${waits}`);
  reconnect.lost('a:1', 10 * SECOND, false);
  assert.ok(reconnect.addresses.wait('a:1') <= 0, 'one that lasted shows that it is well');
});

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
  return reconnect.targets(hubs, [server], connected, configuredFirst);
}

/** Names in order; those that have to wait in brackets. */
function order(agent: Agent, hubs: readonly HubMember[], connected = true): string {
  return ranked(agent, hubs, connected)
    .map(({ place, wait }) => ({ name: place.replace(/:1$/, ''), wait }))
    .map(({ name, wait }) => (wait > 0 ? `(${name})` : name))
    .join(' ');
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
  assert.equal(order(agent, hubs), '(b) a server');
});

test('an agent without a session tries again what failed after all else, also when it need not wait any more', async () => {
  const agent = known();
  const hubs = [hub('a'), hub('b'), hub('c')];
  agent.reconnect.lost('b:1', 60 * SECOND, false);
  await agent.clock.run(1);
  fail(agent.reconnect, 'a:1', false, true);
  await agent.clock.run(SECOND);
  assert.equal(order(agent, hubs, false), 'c server b a');
  fail(agent.reconnect, 'server:1', false, true);
  await agent.clock.run(SECOND);
  assert.equal(order(agent, hubs, false), 'c b a server');
  assert.equal(order(agent, hubs, true), 'a c b server', 'one that has a session keeps to the order of hubs');
  agent.reconnect.lost('c:1', 60 * SECOND, false);
  assert.equal(order(agent, hubs, false), 'a b server c', 'all is worth a try anew');
});

test('of many addresses that fail none is left out', async () => {
  const agent = known();
  const hubs = Array.from({ length: 20 }, (_, index) => hub(`h${index}`));
  const asked = new Map<string, number>();
  for (let attempt = 0; attempt < 210; attempt++) {
    const [next] = ranked(agent, hubs, false).filter(({ wait }) => wait <= 0);
    if (next) {
      asked.set(next.place, (asked.get(next.place) ?? 0) + 1);
      fail(agent.reconnect, next.place);
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
  fail(agent.reconnect, 'server:1', false);
  const [again] = ranked(agent, [hub('a'), hub('b')], false, true);
  assert.equal(again?.place, 'server:1', 'also when it failed: many old hubs may hang');
});

test('with the last session gone no address waits, but for one that ended it at once', () => {
  const agent = known();
  const hubs = [hub('a'), hub('b')];
  fail(agent.reconnect, 'a:1');
  agent.reconnect.lost('b:1', 100, false);
  assert.equal(order(agent, hubs, false), 'server (a) (b)');
  agent.reconnect.lost('b:1', 5 * SECOND, false);
  assert.equal(order(agent, hubs, false), 'a server b');
});

test('the addresses of a name take turns, and one that failed waits', async () => {
  const agent = known(async () => ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  const next = async () => (await agent.server.next(agent.reconnect, true)).address;
  const round = async () => new Set([await next(), await next(), await next()]);
  assert.equal((await round()).size, 3);
  fail(agent.reconnect, '10.0.0.2:1');
  for (let turn = 0; turn < 6; turn++) assert.notEqual(await next(), '10.0.0.2');
  await agent.clock.run(SECOND);
  assert.equal((await round()).size, 3, 'but not for ever: others may lead to nothing new');
  agent.reconnect.lost('10.0.0.2:1', 60 * SECOND, true);
  assert.equal((await round()).size, 3, 'one that was lost');
});

test('a name that does not resolve in time fails, or leads where it did before', async (context) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  context.after(() => mock.timers.reset());
  let answers = false;
  const agent = known(() => (answers ? Promise.resolve(['10.0.0.1']) : new Promise(() => {})));
  const next = async () => (await agent.server.next(agent.reconnect, false)).address;
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

test('a hub that was lost is as good as any when it has started anew, or took the agent again', () => {
  const agent = known();
  const hubs = [hub('a'), hub('b')];
  for (const again of [() => agent.reconnect.started(['a:1']), () => agent.reconnect.reached('a:1')]) {
    agent.reconnect.lost('a:1', 60 * SECOND, true);
    assert.equal(order(agent, hubs), 'b a server');
    again();
    assert.equal(order(agent, hubs), 'a b server');
  }
});

test('those addresses of a name come last that failed last', async () => {
  const agent = known(async () => ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  for (const address of ['10.0.0.3', '10.0.0.1', '10.0.0.2']) {
    fail(agent.reconnect, `${address}:1`, false);
    await agent.clock.run(SECOND);
  }
  assert.equal((await agent.server.next(agent.reconnect, false)).address, '10.0.0.3');
});

test('a configured server that leads to nothing new waits, but not once the last session is gone', () => {
  const agent = known();
  agent.reconnect.missed({ place: agent.server.place, configured: agent.server }, false);
  assert.equal(order(agent, []), '(server)');
  agent.reconnect.lost('a:1', 100, false);
  assert.equal(order(agent, []), 'server');
});

test('each configured server fails and misses alone', async () => {
  const { reconnect } = known();
  const servers = ['a', 'b', 'c'].map((host) => new ConfiguredServer(host, 1, async () => [host]));
  const [first, second] = servers as [ConfiguredServer, ConfiguredServer];
  for (const server of servers) await server.next(reconnect, true);
  fail(reconnect, first.place);
  reconnect.missed({ place: second.place, configured: second }, false);
  const free = reconnect.targets([], servers, true).filter(({ wait }) => wait <= 0);
  assert.deepEqual(
    free.map(({ place }) => place),
    ['c:1'],
  );
});
