import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import type { HubMember } from '@isthmus/transport';
import { type Need, type Slot, Slots } from './slots.ts';

const SECOND = 1000;

function made(clock = new FakeClock(), more: Partial<ConstructorParameters<typeof Slots>[0]> = {}): Slots {
  return new Slots({
    syncInterval: SECOND,
    syncIntervalCap: 8 * SECOND,
    rebalanceTime: 30 * SECOND,
    server: { hosts: ['server'], port: 1 },
    resolve: async (host) => [host],
    clock,
    ...more,
  });
}

function hub(hubId: string, address = `${hubId}:1`): HubMember {
  return { hubId, address, zone: '', draining: false, generation: 1 };
}

/** Where an agent may connect that has one session, or none. */
function targets(slots: Slots, hubs: readonly HubMember[], connected: boolean, more: Partial<Need> = {}) {
  return slots.toFill(hubs, { missing: 1, connected, herd: false, configuredFirst: false, ...more });
}

/** The configured servers, in turn. */
function servers(slots: Slots): Slot[] {
  return targets(slots, [], false).flatMap(({ via }) => via ?? []);
}

/** When the next attempt may begin, at a hub that never failed. Undefined while others are waited for. */
function turn(slots: Slots, connected: boolean, missing = 1): number | undefined {
  const choices = targets(slots, [hub('free')], connected, { missing, herd: connected });
  return choices.find(({ slot }) => slot.place === 'free:1')?.from;
}

function beginServer(slots: Slots) {
  const [slot] = servers(slots) as [Slot];
  return slots.begin({ slot, via: slot }, false);
}

function begin(slots: Slots, place: string, connected: boolean) {
  return slots.begin({ slot: slots.at(place) }, connected);
}

/** An attempt to reach this address fails. */
function fail(slots: Slots, place: string, connected = true, refused = false): void {
  const attempt = begin(slots, place, connected);
  slots.links.delete(attempt);
  slots.failed(attempt, connected, refused);
}

/** A session with this address is lost. */
function lose(slots: Slots, clock: FakeClock, place: string, lived: number, connected: boolean, leaves = false): void {
  slots.lost({ at: slots.at(place), since: clock.now() - lived }, connected, leaves);
}

test('without a session an agent seeks at once, with one at a random time within two seconds', () => {
  const clock = new FakeClock();
  const turns = Array.from({ length: 1000 }, () => turn(made(clock), true) as number);
  assert.equal(turn(made(clock), false, 2), 0);
  assert.ok(turns.every((at) => at >= 0 && at < 2000));
  for (const half of [turns.filter((at) => at < 1000), turns.filter((at) => at >= 1000)]) {
    assert.ok(half.length > 400, `${half.length} of 1000 in this second`);
  }
});

test('the time that was drawn stands until something changes', async () => {
  const clock = new FakeClock(20_000);
  const slots = made(clock);
  const drawn = turn(slots, true);
  await clock.run(100);
  assert.equal(turn(slots, true), drawn);
  slots.anew();
  assert.notEqual(turn(slots, true), drawn);
});

test('attempts that hang begin after 0, 1, 3 and 7 s, and there is no fifth', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const begun: string[] = [];
  for (let second = 0; second < 30; second++) {
    if (turn(slots, false) === 0) {
      begin(slots, `hangs:${second + 1}`, false);
      begun.push(`hangs:${second + 1}`);
    }
    await clock.run(1000);
  }
  assert.deepEqual(begun, ['hangs:1', 'hangs:2', 'hangs:4', 'hangs:8']);
});

test('a hub that hangs is not asked twice', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  begin(slots, 'a:1', false);
  await clock.run(1000);
  const places = targets(slots, [hub('a'), hub('b')], false).map(({ slot }) => slot.place);
  assert.deepEqual(places, ['b:1', 'server:1']);
});

test('as many attempts at once as sessions are missing', () => {
  const slots = made();
  for (const expected of [0, 0, undefined]) {
    assert.equal(turn(slots, false, 2), expected);
    if (expected === 0) begin(slots, 'server:1', false);
  }
});

test('behind a balancer that hangs the next attempt may lead elsewhere', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  beginServer(slots);
  assert.deepEqual(targets(slots, [], false), []);
  await clock.run(1000);
  assert.equal(targets(slots, [], false).length, 1);
});

test('a list of addresses that all fail is gone through fast, and then slowly', () => {
  const slots = made();
  const turns = Array.from({ length: 12 }, () => {
    const at = turn(slots, false);
    fail(slots, 'server:1', false);
    return at;
  });
  assert.deepEqual(turns, [...Array(9).fill(0), 250, 250, 250]);
  slots.reached(slots.at('a:1'));
  assert.equal(turn(slots, false), 0);
});

test('an agent that has a session makes one attempt in fifteen seconds, and gives it time', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const begun: number[] = [];
  for (let second = 0; second < 40; second++) {
    if ((turn(slots, true) ?? Infinity) <= clock.now()) {
      assert.equal(begin(slots, `slow:${second + 1}`, true).timeout, 40_000);
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
  const slots = made(clock);
  const isTurn = (connected: boolean) => (turn(slots, connected, 2) ?? Infinity) <= clock.now();
  for (let second = 0; second < 30; second++) {
    if (isTurn(true)) begin(slots, `hangs:${second + 1}`, true);
    await clock.run(1000);
  }
  assert.equal(slots.connecting.length, 4);
  lose(slots, clock, 'a:1', 60 * SECOND, false);
  assert.ok(isTurn(false));
  begin(slots, 'well:1', false);
  assert.ok(isTurn(false), 'as many at once as are missing');
  const hanging = slots.connecting.map(({ slot }) => hub(slot.place, slot.place));
  const places = targets(slots, hanging, false, { missing: 2 }).map(({ slot }) => slot.place);
  assert.deepEqual(places, ['server:1'], 'hubs that hang are not asked twice');
});

test('each attempt that takes too long gives the next one twice the time, up to a bound', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const timeouts: number[] = [];
  for (let tried = 0; tried < 4; tried++) {
    const attempt = beginServer(slots);
    timeouts.push(attempt.timeout);
    await clock.run(attempt.timeout);
    slots.links.delete(attempt);
    slots.failed(attempt, false);
  }
  assert.deepEqual(timeouts, [10_000, 20_000, 40_000, 40_000]);
  slots.reached(slots.at('a:1'));
  assert.equal(beginServer(slots).timeout, 10_000);
});

test('an address that fails waits ever longer, alone, until its hub starts anew', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const wait = () => slots.at('a:1').from - clock.now();
  for (let failure = 0; failure < 6; failure++) {
    fail(slots, 'a:1');
    assert.ok(slots.at('b:1').from <= clock.now());
    const ceiling = Math.min(8, 2 ** failure) * SECOND;
    assert.ok(wait() >= ceiling / 2 && wait() <= ceiling, `${wait()} after ${failure + 1} failures`);
    await clock.run(wait());
    assert.ok(wait() <= 0);
  }
  fail(slots, 'a:1');
  slots.started([hub('a')]);
  assert.ok(wait() <= 0);
  fail(slots, 'a:1');
  assert.ok(wait() <= SECOND);
});

test('a server that lets an agent in to say that it goes waits like one that fails', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const wait = () => slots.at('a:1').from - clock.now();
  lose(slots, clock, 'a:1', 2 * SECOND, true, true);
  assert.ok(wait() <= 0, 'a server that is rolled did its work');
  for (const ceiling of [1, 2, 4]) {
    lose(slots, clock, 'a:1', 100, true, true);
    assert.ok(wait() >= ceiling * 500 - 100 && wait() <= ceiling * SECOND - 100, `${wait()} of ${ceiling} s`);
    await clock.run(wait());
  }
  lose(slots, clock, 'a:1', 2 * SECOND, true, true);
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
    const slots = made(new FakeClock(), { syncInterval });
    ceilings.forEach((ceiling, before) => {
      fail(slots, 'a:1', false, refused);
      const wait = slots.at('a:1').from;
      assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${before} failures`);
    });
  });
}

test('a configured server that leads to nothing new is asked ever more slowly, and more slowly yet if the agent hears of new ones', () => {
  const slots = made();
  const [server] = servers(slots) as [Slot];
  for (const ceiling of [1, 2, 4, 8, 16, 32, 60, 60]) {
    slots.missed({ slot: server }, true);
    assert.ok(server.from >= ceiling * 500 && server.from <= ceiling * SECOND, `${server.from} of ${ceiling} s`);
  }
  slots.missed({ slot: server }, false);
  assert.ok(server.from > 0 && server.from <= 8 * SECOND, 'an agent that nobody tells of new servers goes on');
  slots.reached(slots.at('a:1'));
  assert.ok(server.from <= 0);
});

test('only so many addresses are remembered', () => {
  const slots = made();
  for (let port = 1; port <= 2000; port++) fail(slots, `a:${port}`);
  const remembered = Array.from({ length: 2000 }, (_, index) => `a:${2000 - index}`);
  assert.equal(remembered.filter((place) => slots.at(place).from > 0).length, 1024);
});

test('a server that ends each session soon is asked ever more slowly, also by an agent that has no other', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const wait = () => Math.max(0, slots.at('a:1').from - clock.now());
  const waits: number[] = [];
  for (let session = 0; session < 8; session++) {
    slots.reached(slots.at('a:1'));
    await clock.run(1.5 * SECOND);
    lose(slots, clock, 'a:1', 1.5 * SECOND, false);
    waits.push(wait());
    await clock.run(wait());
  }
  assert.equal(waits[0], 0, 'the first one is replaced at once');
  for (const each of waits.slice(3)) assert.ok(each >= 2.5 * SECOND && each <= 6.5 * SECOND, `${waits}`);
  lose(slots, clock, 'a:1', 10 * SECOND, false);
  assert.equal(wait(), 0, 'one that lasted shows that it is well');
});

/** Names in order; those that have to wait in brackets. */
function order(slots: Slots, clock: FakeClock, hubs: readonly HubMember[], connected = true): string {
  return targets(slots, hubs, connected)
    .map(({ slot, from }) => ({ name: slot.place.replace(/:1$/, ''), waits: from > clock.now() }))
    .map(({ name, waits }) => (waits ? `(${name})` : name))
    .join(' ');
}

test('hubs come in the order they are given, and the configured server last, without those that are asked already', () => {
  const clock = new FakeClock();
  const slots = made(clock);
  assert.equal(order(slots, clock, [hub('a'), hub('b', ''), hub('c')]), 'a c server');
  const [server] = servers(slots) as [Slot];
  begin(slots, 'a:1', true);
  slots.begin({ slot: server, via: server }, true);
  assert.deepEqual(targets(slots, [hub('a')], true, { missing: 3 }), []);
});

test('where a session was lost is tried last, and waits when the session did not last', () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const hubs = [hub('a'), hub('b')];
  lose(slots, clock, 'a:1', 60 * SECOND, true);
  assert.equal(order(slots, clock, hubs), 'b a server');
  lose(slots, clock, 'b:1', 100, true);
  assert.equal(order(slots, clock, hubs), '(b) a server');
});

test('an agent without a session tries again what failed after all else, also when it need not wait any more', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const hubs = [hub('a'), hub('b'), hub('c')];
  const { slot: server, ...attempt } = beginServer(slots);
  slots.links.clear();
  lose(slots, clock, 'b:1', 60 * SECOND, false);
  await clock.run(1);
  fail(slots, 'a:1', false, true);
  await clock.run(SECOND);
  assert.equal(order(slots, clock, hubs, false), 'c server b a');
  slots.failed({ ...attempt, slot: server }, false, true);
  await clock.run(SECOND);
  assert.equal(order(slots, clock, hubs, false), 'c b a server');
  assert.equal(order(slots, clock, hubs, true), 'a c b server', 'one that has a session keeps to the order of hubs');
  lose(slots, clock, 'c:1', 60 * SECOND, false);
  assert.equal(order(slots, clock, hubs, false), 'a b server c', 'all is worth a try anew');
});

test('of many addresses that fail none is left out', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const hubs = Array.from({ length: 20 }, (_, index) => hub(`h${index}`));
  const asked = new Map<string, number>();
  for (let attempt = 0; attempt < 210; attempt++) {
    const next = targets(slots, hubs, false).find(({ from }) => from <= clock.now());
    if (next) {
      asked.set(next.slot.place, (asked.get(next.slot.place) ?? 0) + 1);
      const link = slots.begin(next, true);
      slots.links.delete(link);
      slots.failed(link, true);
    }
    await clock.run(SECOND);
  }
  assert.equal(asked.size, 21);
  const counts = [...asked.values()];
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 2, `${counts}`);
});

test('while what is known of hubs is old the configured server comes first', () => {
  const slots = made();
  const places = () =>
    targets(slots, [hub('a'), hub('b')], false, { configuredFirst: true }).map(({ slot }) => slot.place);
  assert.deepEqual(places(), ['server:1', 'a:1', 'b:1']);
  const attempt = beginServer(slots);
  slots.links.delete(attempt);
  slots.failed(attempt, false);
  assert.equal(places()[0], 'server:1', 'also when it failed: many old hubs may hang');
});

test('with the last session gone no address waits, but for one that ended it at once', () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const hubs = [hub('a'), hub('b')];
  fail(slots, 'a:1');
  lose(slots, clock, 'b:1', 100, false);
  assert.equal(order(slots, clock, hubs, false), 'server (a) (b)');
  lose(slots, clock, 'b:1', 5 * SECOND, false);
  assert.equal(order(slots, clock, hubs, false), 'a server b');
});

/** Where an attempt at the configured server leads next. */
async function leads(slots: Slots, calm: boolean): Promise<string> {
  const [slot] = servers(slots) as [Slot];
  const attempt = slots.begin({ slot, via: slot }, calm);
  try {
    return (await slots.addressOf(attempt)).address;
  } finally {
    slots.links.delete(attempt);
  }
}

const THREE = ['10.0.0.1', '10.0.0.2', '10.0.0.3'];

test('the addresses of a name take turns, and one that failed waits', async () => {
  const clock = new FakeClock();
  const slots = made(clock, { resolve: async () => THREE });
  const next = () => leads(slots, true);
  const round = async () => new Set([await next(), await next(), await next()]);
  assert.equal((await round()).size, 3);
  fail(slots, '10.0.0.2:1');
  for (let turn = 0; turn < 6; turn++) assert.notEqual(await next(), '10.0.0.2');
  await clock.run(SECOND);
  assert.equal((await round()).size, 3, 'but not for ever: others may lead to nothing new');
  lose(slots, clock, '10.0.0.2:1', 60 * SECOND, true);
  assert.equal((await round()).size, 3, 'one that was lost');
});

test('a name that does not resolve in time fails, or leads where it did before', async () => {
  const clock = new FakeClock();
  let answers = false;
  const slots = made(clock, {
    resolve: (_host, signal) =>
      new Promise((resolve, reject) => {
        if (answers) resolve(['10.0.0.1']);
        else signal.addEventListener('abort', () => reject(signal.reason));
      }),
  });
  const late = assert.rejects(leads(slots, false), /server did not resolve within 5 s/);
  await clock.run(5 * SECOND + 1);
  await late;
  answers = true;
  assert.equal(await leads(slots, false), '10.0.0.1');
  answers = false;
  const again = leads(slots, false);
  await clock.run(5 * SECOND + 1);
  assert.equal(await again, '10.0.0.1');
});

test('a hub that was lost is as good as any when it has started anew, or took the agent again', () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const hubs = [hub('a'), hub('b')];
  for (const again of [() => slots.started([hub('a')]), () => slots.reached(slots.at('a:1'))]) {
    lose(slots, clock, 'a:1', 60 * SECOND, true);
    assert.equal(order(slots, clock, hubs), 'b a server');
    again();
    assert.equal(order(slots, clock, hubs), 'a b server');
  }
});

test('those addresses of a name come last that failed last', async () => {
  const clock = new FakeClock();
  const slots = made(clock, { resolve: async () => THREE });
  for (const address of ['10.0.0.3', '10.0.0.1', '10.0.0.2']) {
    fail(slots, `${address}:1`, false);
    await clock.run(SECOND);
  }
  assert.equal(await leads(slots, false), '10.0.0.3');
});

test('a configured server that leads to nothing new waits, but not once the last session is gone', () => {
  const clock = new FakeClock();
  const slots = made(clock);
  slots.missed({ slot: servers(slots)[0] as Slot }, false);
  assert.equal(order(slots, clock, []), '(server)');
  lose(slots, clock, 'a:1', 100, false);
  assert.equal(order(slots, clock, []), 'server');
});

test('each configured server fails and misses alone', async () => {
  const clock = new FakeClock();
  const slots = made(clock, { server: { hosts: ['a', 'b', 'c'], port: 1 } });
  const [first, second, third] = servers(slots) as [Slot, Slot, Slot];
  for (const slot of [first, second, third]) {
    const attempt = slots.begin({ slot, via: slot }, true);
    await slots.addressOf(attempt);
    slots.links.delete(attempt);
  }
  fail(slots, first.place);
  slots.missed({ slot: second }, false);
  const free = targets(slots, [], true).filter(({ from }) => from <= clock.now());
  assert.deepEqual(
    free.map(({ slot }) => slot),
    [third],
  );
});

test('a better hub that failed waits for its pause alone, until it starts anew', async () => {
  const clock = new FakeClock();
  const slots = made(clock);
  const better = hub('b');
  const from = () => slots.toMove([better], false)[0]?.from as number;
  await clock.run(from());
  const attempt = slots.begin({ slot: slots.at('b:1'), better }, true);
  slots.links.delete(attempt);
  slots.failed(attempt, true);
  assert.ok(from() > clock.now() && from() <= clock.now() + SECOND);
  const turns = Array.from({ length: 20 }, () => {
    slots.started([better]);
    return from() - clock.now();
  });
  assert.ok(Math.max(...turns) > 15 * SECOND, `${turns}`);
});
