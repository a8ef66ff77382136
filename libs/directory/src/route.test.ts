import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AgentIdentifiers, type Dial, DialError, type DialRequest } from '@isthmus/tunnel';
import { request, unobserved } from '@isthmus/tunnel/testing';
import { routed } from './attempts.ts';
import { Directory } from './directory.ts';
import { STRATEGIES } from './placement.ts';
import { bestOf, type Routed, route, Suspects } from './route.ts';
import { hub, nothing, session } from './testing/routing.ts';

/** Returns a seeded generator of numbers from 0 to 1 (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const HOSTS = ['10.1.2.3', '10.9.9.9', 'db.internal', '2001:db8::7'];

function planeOf(seed: number) {
  const random = seeded(seed);
  const one = <T>(of: readonly T[]) => of[Math.floor(random() * of.length)] as T;
  const some = <T>(of: readonly T[]) => of.filter(() => random() < 0.3);
  const chance = (part: number) => random() < part;
  const hubIds = ['h0', 'h1', 'h2', 'h3', 'h4'].slice(0, 1 + Math.floor(random() * 5));
  const agentIds = ['a0', 'a1', 'a2', 'a3', 'a4', 'a5'];
  const identifiers = (): AgentIdentifiers => ({
    ...nothing,
    host: some(['db.internal', 'other']),
    ipv4: some(['10.1.2.3']),
    cidr: some(['10.0.0.0/8', '10.1.0.0/16', '2001:db8::/32']),
    defaultRoute: chance(0.3),
  });
  const draw = { next: Math.random };
  const directory = new Directory({ ...(chance(0.7) && { ownHub: 'h0' }), random: () => draw.next() });
  directory.reset({
    hubs: hubIds.map((hubId) => hub(hubId, { zone: one(['', 'y', 'z']), draining: chance(0.1) })),
    sessions: Array.from({ length: Math.floor(random() * 14) }, (_, index) => {
      const more = { agentId: one(agentIds), hubId: one(hubIds), draining: chance(0.1), identifiers: identifiers() };
      return session(`s${index}`, more);
    }),
    quarantines: some(agentIds.slice(0, 2)).map((agentId) => ({ tenant: 'default', agentId, reason: '', version: 1 })),
  });
  for (const each of directory.of('default')) each.open = one([0, 0, 3, 400, 600, 1000, 1001, 1300, 5000]);
  // The clock stands still, so a suspect stays one.
  const suspects = new Suspects(() => 0);
  suspects.accuse(
    'default',
    ...some(hubIds.slice(1)),
    ...some([...directory.sessions()].map(({ sessionId }) => sessionId)),
  );
  const cut = new Set(some(hubIds));
  const strategies = STRATEGIES.filter(() => chance(0.6)).sort(() => random() - 0.5);
  return { directory, suspects, cut, draw, strategies, zone: one(['', 'y', 'z']), host: one(HOSTS) };
}

/** The sessions of a whole route that a dial may take: the first, and its equals. */
function firsts(of: Iterable<Routed>): string[] {
  const all = [...of];
  const rank = all[0]?.rank;
  return rank ? all.filter((each) => each.rank === rank).map(({ session }) => session.record.sessionId) : [];
}

const refused = new DialError('connection_refused', 'connection refused');
const unknown = new DialError('destination_unavailable', 'no such session', { retryable: true });

const SEEDS = 200;

for (const [name, error] of [
  ['a dial takes the session that is first in its whole route, until none is left', refused],
  ['each retry of a dial takes the first session of the route as it is then', unknown],
] as const) {
  test(name, async () => {
    let dialled = 0;
    for (let seed = 0; seed < SEEDS; seed++) {
      const { directory, suspects, cut, draw, host, ...rest } = planeOf(seed);
      const seen: string[] = [];
      const expected: { readonly taken: string | undefined; readonly firsts: string[] }[] = [];
      const dial: Dial = ({ session: sessionId = '' }: DialRequest) => {
        seen.push(sessionId);
        return Promise.reject(error);
      };
      const options = { directory, ...rest, nextHop: (hubId: string) => (cut.has(hubId) ? undefined : { dial }) };
      const destination = { host, port: 443 };
      const look = () => {
        draw.next = seeded(seed);
        const first = firsts(route({ ...options, suspects }, { tenant: 'default', host }));
        expected.push({ taken: first[0], firsts: first });
        draw.next = seeded(seed);
      };
      // A session that its hub does not know leaves the directory before the dial tries another one.
      const stop = directory.watch({ came() {}, went: look });
      const routedDial = routed({ ...options, parkTimeout: 0, observation: unobserved() }, suspects);
      for (look(); ; directory.forget(seen.at(-1) ?? '')) {
        const before = seen.length;
        draw.next = seeded(seed);
        await assert.rejects(routedDial({ ...request, destination }));
        if (seen.length === before) break;
      }
      stop();
      assert.deepEqual(
        seen,
        expected.slice(0, seen.length).map(({ taken }) => taken),
        `seed ${seed}`,
      );
      for (const [at, sessionId] of seen.entries()) {
        assert.ok(expected[at]?.firsts.includes(sessionId), `seed ${seed}: ${sessionId} at ${at}`);
      }
      assert.equal(expected.at(-1)?.taken, undefined, `seed ${seed}: nothing is left`);
      dialled += seen.length;
    }
    assert.ok(dialled > SEEDS, `${dialled} attempts`);
  });
}

test('a dial looks at as many sessions among 10,000 agents as among 10', () => {
  const looked = (agents: number, ownHub?: string): number => {
    const hubIds = ['h0', 'h1', 'h2'];
    const random = seeded(agents);
    const directory = new Directory({ random, ...(ownHub !== undefined && { ownHub }) });
    directory.reset({
      hubs: hubIds.map((hubId) => hub(hubId)),
      sessions: Array.from({ length: agents }, (_, n) => session(`s${n}`, { hubId: `h${n % 3}` })),
      quarantines: [],
    });
    let looks = 0;
    const reached = () => {
      looks++;
      return { dial: () => Promise.reject(refused) };
    };
    const options = { directory, strategies: STRATEGIES, zone: '', nextHop: reached, suspects: new Suspects() };
    for (let dial = 0; dial < 100; dial++) {
      assert.ok(bestOf(options, { tenant: 'default', host: '10.1.2.3' }));
    }
    return looks / 100;
  };
  for (const ownHub of [undefined, 'h0']) {
    const [few, many] = [looked(10, ownHub), looked(10_000, ownHub)];
    // Of two sessions in a row at one hub, the second needs no look, which chance decides.
    assert.ok(many < 1.1 * few && few < 5, `${few} looks among 10 agents, ${many} among 10,000`);
  }
});

test('a suspect is avoided for a second, unless it answers', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  suspects.accuse('t', 'a', 'b');
  suspects.clear('b');
  assert.deepEqual([suspects.has('a', 't'), suspects.has('b', 't')], [true, false]);
  now = 1000;
  assert.equal(suspects.has('a', 't'), false);
});

test('expired suspects are forgotten even if nobody asks about them', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  for (let round = 0; round < 100_000; round++) {
    now += 10;
    suspects.accuse(`tenant ${round}`, `session ${round}`);
    assert.ok(suspects.size <= 100, `${suspects.size} suspects`);
  }
});

test('an accusation costs the same, however many suspects there are', () => {
  let looks = 0;
  const suspects = new Suspects(() => {
    looks++;
    return 0;
  });
  const ACCUSED = 20_000;
  for (let i = 0; i < ACCUSED; i++) suspects.accuse('t', `session ${i}`);
  assert.equal(suspects.size, ACCUSED);
  assert.ok(looks <= 4 * ACCUSED, `${looks} looks at the clock`);
});

test("one tenant's silent agents make its own dials avoid a hub, those of two tenants make all dials avoid it", () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  const seen = () => ['one', 'two', 'three'].map((tenant) => suspects.has('hub', tenant));
  suspects.accuse('one', 'hub');
  suspects.accuse('one', 'hub');
  assert.deepEqual(seen(), [true, false, false]);
  now = 500;
  suspects.accuse('two', 'hub');
  assert.deepEqual(seen(), [true, true, true]);
  now = 1000;
  assert.deepEqual(seen(), [false, true, false]);
  suspects.clear('hub');
  assert.deepEqual(seen(), [false, false, false]);
});

test('a hub that sessions of ever other tenants accuse is remembered for the latest', () => {
  let now = 0;
  const suspects = new Suspects(() => now);
  for (let round = 0; round < 100_000; round++) {
    now += 10;
    suspects.accuse(`tenant ${round}`, 'hub');
  }
  assert.equal(suspects.has('hub', 'another'), true);
  now += 995;
  assert.deepEqual([suspects.has('hub', 'another'), suspects.has('hub', 'tenant 99999')], [false, true]);
});
