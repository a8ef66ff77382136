import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { FakeClock } from '@isthmus/runtime/testing';
import type { HubMember } from '@isthmus/transport';
import { Addresses, type AddressesOptions, type Target } from './addresses.ts';

const SECOND = 1000;

function hub(hubId: string, address = `${hubId}:1`): HubMember {
  return { hubId, address, zone: '', draining: false, generation: 1 };
}

function known(more: Partial<AddressesOptions> = {}) {
  const clock = new FakeClock();
  const resolve = async (host: string) => [host];
  const server = { hosts: ['origin'], port: 1 };
  return { clock, addresses: new Addresses({ ...server, first: SECOND, cap: 8 * SECOND, clock, resolve, ...more }) };
}

/** The configured server whose turn it is. */
function configured(addresses: Addresses): Target {
  return addresses.targetOf(hub('nobody', ''));
}

/** Addresses in order; those that have to wait in brackets. */
function order(addresses: Addresses, hubs: readonly HubMember[], connected = true): string {
  const targets = addresses.rank(hubs, connected, []);
  return targets
    .map(({ server, origin, wait }) =>
      wait > 0 ? `(${server?.address})` : (server?.address ?? origin?.name.replace(/:1$/, '')),
    )
    .join(' ');
}

test('hubs come in the order they are given, and the configured server last', () => {
  const { addresses } = known();
  assert.equal(order(addresses, [hub('a'), hub('b', ''), hub('c')]), 'a c origin');
  const without = [{ server: { address: 'a', port: 1 } }, configured(addresses)];
  assert.equal(addresses.rank([hub('a')], true, without).length, 0);
});

test('an address that fails waits ever longer, alone, until it lasts or its hub starts anew', async () => {
  const { clock, addresses } = known();
  const hubs = [hub('a'), hub('b')];
  const waits: number[] = [];
  for (let failure = 0; failure < 6; failure++) {
    addresses.failed('a:1');
    assert.equal(order(addresses, hubs), '(a) b origin');
    const wait = addresses.rank(hubs, true, [])[0]?.wait ?? 0;
    waits.push(wait);
    await clock.run(wait);
    assert.equal(order(addresses, hubs), 'a b origin');
  }
  waits.forEach((wait, index) => {
    const ceiling = Math.min(8, 2 ** index) * SECOND;
    assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${index + 1} failures`);
  });
  addresses.failed('a:1');
  addresses.started([hub('a')]);
  assert.equal(order(addresses, hubs), 'a b origin');
  addresses.failed('a:1');
  assert.ok((addresses.rank(hubs, true, [])[0]?.wait as number) <= SECOND);
});

test('where a session was lost is tried last, and waits when the session did not last', () => {
  const { addresses } = known();
  const hubs = [hub('a'), hub('b')];
  addresses.lost('a:1', 60 * SECOND, true);
  assert.equal(order(addresses, hubs), 'b a origin');
  addresses.lost('b:1', 100, true);
  assert.equal(order(addresses, hubs), 'a (b) origin');
});

test('a server that lets an agent in to say that it goes waits: shortly at first, then like one that fails', async () => {
  const { clock, addresses } = known();
  const wait = () => addresses.wait({ server: { address: 'a', port: 1 } });
  addresses.warned('a:1', 60 * SECOND);
  assert.equal(wait(), 0, 'a server that is rolled did its work');
  addresses.warned('a:1', 0);
  assert.ok(wait() >= 50 && wait() <= 100, `${wait()}`);
  for (const ceiling of [1, 2, 4]) {
    await clock.run(wait());
    addresses.warned('a:1', 100);
    assert.ok(wait() >= ceiling * 500 - 100 && wait() <= ceiling * SECOND - 100, `${wait()} of ${ceiling} s`);
  }
  addresses.warned('a:1', 10 * SECOND);
  assert.equal(wait(), 0);
});

test('the first failure of an agent without a session makes it wait shortly, whatever was before', () => {
  const { addresses } = known();
  for (let failure = 0; failure < 4; failure++) addresses.failed('a:1');
  addresses.failedUrgently('a:1');
  assert.ok(addresses.wait({ server: { address: 'a', port: 1 } }) <= 100);
  addresses.failedUrgently('a:1', { before: 1 });
  assert.ok(addresses.wait({ server: { address: 'a', port: 1 } }) >= 4 * SECOND, 'and changes nothing in what follows');
});

test('an agent without a session asks a few times more, shortly after another, where nobody listens yet', () => {
  const { addresses } = known();
  // From then on as often, because callers may wait for it.
  const ceilings = [50, 100, 200, 400, 800, 1000, 2000, 2000, 2000];
  ceilings.forEach((ceiling, before) => {
    addresses.failedUrgently('a:1', { before, refused: true });
    const wait = addresses.wait({ server: { address: 'a', port: 1 } });
    assert.ok(wait >= ceiling / 2 && wait <= ceiling, `${wait} after ${before} failures`);
  });
});

test('an agent whose pauses are long asks no sooner where nobody listens', () => {
  const { addresses } = known({ first: 5 * SECOND });
  for (let before = 5; before < 8; before++) {
    addresses.failedUrgently('a:1', { before, refused: true });
    const wait = addresses.wait({ server: { address: 'a', port: 1 } });
    assert.ok(wait >= 2.5 * SECOND && wait <= 5 * SECOND, `${wait} after ${before} failures`);
  }
});

test('an agent without a session tries again what failed after all else, also when it need not wait any more', async () => {
  const { clock, addresses } = known();
  const hubs = [hub('a'), hub('b'), hub('c')];
  addresses.lost('b:1', 60 * SECOND, false);
  addresses.failedUrgently('a:1', { refused: true });
  await clock.run(SECOND);
  assert.equal(order(addresses, hubs, false), 'c b origin a');
  addresses.failedUrgently('origin:1', { refused: true });
  await clock.run(SECOND);
  assert.equal(order(addresses, hubs, false), 'c b a origin');
  assert.equal(order(addresses, hubs, true), 'a c b origin', 'one that has a session keeps to the order of hubs');
  addresses.lost('c:1', 60 * SECOND, false);
  assert.equal(order(addresses, hubs, false), 'a b c origin', 'all is worth a try anew');
});

test('of many addresses that fail none is left out', async () => {
  const { clock, addresses } = known();
  const hubs = Array.from({ length: 20 }, (_, index) => hub(`h${index}`));
  const asked = new Map<string, number>();
  for (let attempt = 0; attempt < 210; attempt++) {
    const [next] = addresses.rank(hubs, false, []).filter(({ wait }) => wait === 0);
    if (next) {
      const place = addresses.nameOf(next);
      asked.set(place, (asked.get(place) ?? 0) + 1);
      addresses.failed(place);
    }
    await clock.run(SECOND);
  }
  assert.equal(asked.size, 21);
  const counts = [...asked.values()];
  assert.ok(Math.max(...counts) - Math.min(...counts) <= 2, `${counts}`);
});

test('while what is known of hubs is old the configured server comes first', () => {
  const { addresses } = known();
  const first = addresses.rank([hub('a'), hub('b')], false, [], true);
  assert.deepEqual(
    first.map(({ server }) => server?.address),
    [undefined, 'a', 'b'],
  );
  addresses.failedUrgently('origin:1');
  const [again] = addresses.rank([hub('a'), hub('b')], false, [], true);
  assert.equal(again?.server, undefined, 'also when it failed: many old hubs may hang');
});

test('with the last session gone no address waits, but for one that ended it at once', () => {
  const { addresses } = known();
  const hubs = [hub('a'), hub('b')];
  addresses.failed('a:1');
  assert.equal(addresses.lost('b:1', 100, false), false);
  assert.equal(order(addresses, hubs, false), 'origin (a) (b)');
  assert.equal(addresses.lost('b:1', 5 * SECOND, false), true);
  assert.equal(order(addresses, hubs, false), 'a b origin');
});

test('a configured server that leads to nothing new waits, but not for an agent without a session', async () => {
  const { clock, addresses } = known();
  const wait = (connected: boolean) => addresses.rank([], connected, [])[0]?.wait as number;
  for (let miss = 0; miss < 16; miss++) addresses.missed(configured(addresses), true);
  assert.ok(wait(true) <= 8 * SECOND);
  addresses.missed(configured(addresses), true);
  assert.ok(wait(true) >= 30 * SECOND && wait(true) <= 90 * SECOND);
  assert.equal(wait(false), 0);
  addresses.missed(configured(addresses), false);
  assert.ok(wait(true) <= 8 * SECOND, 'an agent that nobody tells of new servers goes on');
  addresses.reached();
  assert.equal(wait(true), 0);
  await clock.run(0);
});

test('the addresses of a name take turns, and one that failed waits', async () => {
  const { addresses } = known({ resolve: async () => ['10.0.0.1', '10.0.0.2', '10.0.0.3'] });
  const seen: string[] = [];
  for (let turn = 0; turn < 3; turn++) seen.push((await addresses.resolve(configured(addresses), true)).address);
  assert.deepEqual(seen.sort(), ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  addresses.failed('10.0.0.2:1');
  for (let turn = 0; turn < 6; turn++)
    assert.notEqual((await addresses.resolve(configured(addresses), true)).address, '10.0.0.2');
});

test('a name that does not resolve in time fails, or leads where it did before', async (context) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  context.after(() => mock.timers.reset());
  let answers = false;
  const { addresses } = known({ resolve: () => (answers ? Promise.resolve(['10.0.0.1']) : new Promise(() => {})) });
  const late = assert.rejects(addresses.resolve(configured(addresses), true), /origin did not resolve within 5 s/);
  mock.timers.tick(5 * SECOND);
  await late;
  answers = true;
  assert.equal((await addresses.resolve(configured(addresses), true)).address, '10.0.0.1');
  answers = false;
  const again = addresses.resolve(configured(addresses), true);
  mock.timers.tick(5 * SECOND);
  assert.equal((await again).address, '10.0.0.1');
});

test('a hub that was lost is as good as any when it has started anew', () => {
  const { addresses } = known();
  const hubs = [hub('a'), hub('b')];
  addresses.lost('a:1', 60 * SECOND, true);
  assert.equal(order(addresses, hubs), 'b a origin');
  addresses.started([hub('a')]);
  assert.equal(order(addresses, hubs), 'a b origin');
});

test('configured servers take turns, each fails and misses alone, and agents do not all begin with the same one', async () => {
  const hosts = ['a', 'b', 'c'];
  const { addresses } = known({ hosts });
  const seen: (string | undefined)[] = [];
  for (let turn = 0; turn < 6; turn++) seen.push((await addresses.resolve(configured(addresses), true)).name);
  assert.deepEqual(seen.slice(0, 3).sort(), hosts);
  assert.deepEqual(seen.slice(3), seen.slice(0, 3));
  const [first, second, third] = seen as [string, string, string];
  addresses.failed(`${first}:1`);
  await addresses.resolve(configured(addresses), true);
  addresses.missed(addresses.rank([], true, []).find(({ origin }) => origin?.name === `${second}:1`) as Target, false);
  assert.deepEqual(
    addresses.rank([], true, []).flatMap(({ origin, wait }) => (wait > 0 ? [] : [origin?.name])),
    [`${third}:1`],
  );
  const clock = new FakeClock();
  const begun = await Promise.all(
    Array.from({ length: 60 }, async () => {
      const one = known({ hosts, clock }).addresses;
      return (await one.resolve(configured(one), true)).name;
    }),
  );
  assert.equal(new Set(begun).size, 3);
});
