import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  Directory,
  type HubRecord,
  lookups,
  type Quarantine,
  type RouteOptions,
  route,
  type SessionRecord,
} from '@isthmus/directory';
import { adminApi, namesOf } from '@isthmus/proto/admin';
import { type AgentIdentifiers, planeEvents } from '@isthmus/tunnel';
import { explained } from './explain.ts';

type Explanation = ReturnType<typeof explained>;

const dial = async () => assert.fail('dialled');

const nothing: AgentIdentifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };

function hub(hubId: string, more: Partial<HubRecord> = {}): HubRecord {
  return { hubId, incarnation: 1, peerAddress: '', agentAddress: '', zone: '', draining: false, ...more };
}

function session(sessionId: string, hubId: string, more: Partial<SessionRecord> = {}): SessionRecord {
  return {
    sessionId,
    tenant: 'default',
    agentId: `agent of ${sessionId}`,
    identifiers: nothing,
    hubId,
    incarnation: 1,
    version: 1,
    draining: false,
    since: 0,
    ...more,
  };
}

interface Asked extends Partial<Omit<RouteOptions, 'directory'>> {
  readonly hubs?: HubRecord[];
  readonly sessions: SessionRecord[];
  readonly quarantines?: Quarantine[];
  readonly host?: string;
  readonly ownHub?: string;
  /** Tunnels that are already open, by session. */
  readonly open?: Readonly<Record<string, number>>;
}

function asked({ hubs = [hub('h1')], sessions, quarantines = [], host = '10.1.2.3', ...rest }: Asked): Explanation {
  const { ownHub, open = {}, ...more } = rest;
  const directory = new Directory({ random: () => 0, ...(ownHub !== undefined && { ownHub }) });
  directory.reset({ hubs, sessions, quarantines });
  for (const each of directory.of('default')) each.open = open[each.record.sessionId] ?? 0;
  const defaults = {
    strategies: ['default'],
    zone: '',
    nextHop: () => ({ dial }),
    suspects: new Set<string>(),
  } as const;
  const options: RouteOptions = { ...defaults, ...more, directory };
  const routing = {
    ...{ tenant: 'default', dialTimeout: 60_000, parkTimeout: 2000, dial, events: planeEvents() },
    strategies: options.strategies,
    zone: options.zone,
    lookups: (tenant: string, to: string) => lookups(options, { tenant, host: to }),
    route: (tenant: string, to: string) => route(options, { tenant, host: to }),
    policy: () => undefined,
    direct: () => undefined,
  };
  return explained({ tenant: 'default', destination: { host, port: 443 }, routing });
}

const STANDINGS = namesOf(adminApi.Candidate_Standing, 'STANDING');

/** Each candidate as `session: standing, why`. */
function told({ steps }: Explanation): string[][] {
  return steps.map(({ candidates }) =>
    candidates.map(({ sessionId, standing, why }) => `${sessionId}: ${STANDINGS[standing]}${why && `, ${why}`}`),
  );
}

const CHANCE = 'just as good: chance and fewer open tunnels decide';

test('one of several equally good sessions is taken', () => {
  const answer = asked({ sessions: [session('a', 'h1'), session('b', 'h1')] });
  const taken = answer.taken?.sessionId;
  assert.deepEqual(told(answer)[0]?.sort(), [
    taken === 'a' ? 'a: taken' : `a: equal, ${CHANCE}`,
    taken === 'b' ? 'b: taken' : `b: equal, ${CHANCE}`,
  ]);
});

test('strategies are listed in order with the keys that they look up, longest prefix first', () => {
  const cidr = (...prefixes: string[]) => ({ identifiers: { ...nothing, cidr: prefixes } });
  const answer = asked({
    strategies: ['destHost', 'destCIDR', 'default'],
    sessions: [session('wide', 'h1', cidr('10.0.0.0/8')), session('narrow', 'h1', cidr('10.1.0.0/16', '10.9.0.0/24'))],
  });
  assert.deepEqual(
    answer.steps.map(({ strategy, keys }) => [strategy, ...keys.map(({ key, sessions }) => `${key} (${sessions})`)]),
    [
      ['destHost', '10.1.2.3 (0)'],
      ['destCIDR', '10.1.2.0/24 (0)', '10.1.0.0/16 (1)', '10.0.0.0/8 (1)'],
      ['default', 'any (2)'],
    ],
  );
  assert.deepEqual(told(answer).slice(0, 2), [
    [],
    ['narrow: taken', 'wide: later, a longer prefix leads to another session'],
  ]);
  for (const line of told(answer)[2] ?? []) assert.match(line, /later, strategy destCIDR comes first/);
});

test('IPv6 prefixes are shown as they are written', () => {
  const identifiers = { ...nothing, cidr: ['2001:db8::/32'] };
  const answer = asked({
    strategies: ['destCIDR'],
    host: '2001:db8::7',
    sessions: [session('six', 'h1', { identifiers })],
  });
  assert.deepEqual(answer.steps[0]?.keys, [{ key: '2001:db8::/32', sessions: 1 }]);
});

test('each session says why it ranks behind another', () => {
  const answer = asked({
    zone: 'a',
    hubs: [hub('near', { zone: 'a' }), hub('far', { zone: 'b' }), hub('leaves', { draining: true }), hub('cut')],
    nextHop: (hubId) => (hubId === 'cut' ? undefined : { dial }),
    suspects: new Set(['silent']),
    quarantines: [{ tenant: 'default', agentId: 'agent of sick', reason: 'it loses packets', version: 1 }],
    sessions: [
      ...['good', 'silent', 'sick'].map((id) => session(id, 'near')),
      ...[session('distant', 'far'), session('moving', 'leaves'), session('lost', 'cut')],
    ],
  });
  assert.equal(answer.taken?.sessionId, 'good');
  assert.deepEqual(told(answer), [
    [
      'good: taken',
      'distant: later, its hub is in zone "b", and this gateway in "a"',
      'moving: later, it drains',
      'silent: later, it, or its hub, left a dial without a sign of life a moment ago',
      'sick: not, agent agent of sick is in quarantine: it loses packets',
      'lost: not, no link to hub cut',
    ],
  ]);
});

const OTHER = "it is at another hub, and the one in this gateway's own process comes first";

test("the hub in the gateway's own process comes before its zone, and behind suspicion and a longer prefix", () => {
  const hubs = [hub('mine', { zone: 'b' }), hub('near', { zone: 'a' }), hub('leaves', { draining: true })];
  const sessions = [session('own', 'mine'), session('next', 'near'), session('moving', 'leaves')];
  const plane = { ownHub: 'mine', zone: 'a', hubs, sessions };
  assert.deepEqual(told(asked(plane)), [['own: taken', `next: later, ${OTHER}`, 'moving: later, it drains']]);
  assert.deepEqual(told(asked({ ...plane, suspects: new Set(['own']) })), [
    [
      'next: taken',
      'moving: later, it drains',
      'own: later, it, or its hub, left a dial without a sign of life a moment ago',
    ],
  ]);
  const cidr = { identifiers: { ...nothing, cidr: ['10.0.0.0/8'] } };
  const routed = [session('own', 'mine'), session('next', 'near', cidr)];
  assert.equal(asked({ ...plane, strategies: ['destCIDR', 'default'], sessions: routed }).taken?.sessionId, 'next');
});

test('an agent at the own hub that is far busier than one elsewhere is passed over for it', () => {
  const hubs = [hub('mine'), hub('other')];
  const sessions = [session('own', 'mine'), session('next', 'other')];
  const plane = { ownHub: 'mine', hubs, sessions };
  const busy = 'its agent carries too much: far more tunnels of this gateway than another';
  assert.deepEqual(told(asked({ ...plane, open: { own: 1001, next: 500 } })), [['next: taken', `own: later, ${busy}`]]);
  for (const open of [{ own: 1000 }, { own: 1001, next: 501 }]) {
    assert.deepEqual(told(asked({ ...plane, open })), [['own: taken', `next: later, ${OTHER}`]]);
  }
  // A session at another hub reaches the same agent, and so has the same load.
  const same = sessions.map((each) => ({ ...each, agentId: 'a' }));
  assert.deepEqual(told(asked({ ...plane, sessions: same, open: { own: 5000 } })), [
    ['own: taken', `next: later, ${OTHER}`],
  ]);
});

test('a session in another place is taken when the better ones cannot be', () => {
  const answer = asked({
    strategies: ['destHost', 'default'],
    hubs: [hub('h1'), hub('cut')],
    nextHop: (hubId) => (hubId === 'cut' ? undefined : { dial }),
    sessions: [session('named', 'cut', { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } }), session('other', 'h1')],
  });
  assert.deepEqual(told(answer), [
    ['named: not, no link to hub cut'],
    ['other: taken', 'named: not, no link to hub cut'],
  ]);
});

test('sessions that no strategy finds are listed separately, and those of other tenants not at all', () => {
  const answer = asked({
    strategies: ['destHost'],
    sessions: [session('a', 'h1'), session('foreign', 'h1', { tenant: 'acme' })],
  });
  assert.equal(answer.taken, undefined);
  assert.deepEqual(
    answer.others.map(({ sessionId, standing }) => `${sessionId}: ${STANDINGS[standing]}`),
    ['a: not'],
  );
});

test('a session that matches two prefixes is found by the longer one', () => {
  const answer = asked({
    strategies: ['destCIDR'],
    sessions: [session('both', 'h1', { identifiers: { ...nothing, cidr: ['10.0.0.0/8', '10.1.0.0/16'] } })],
  });
  assert.deepEqual(told(answer), [['both: taken', 'both: later, a longer prefix leads to it already']]);
});

test('the taken session is listed, however many sessions earlier strategies find', () => {
  const named = { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } };
  const answer = asked({
    strategies: ['destHost', 'defaultRoute'],
    hubs: [hub('h1'), hub('cut')],
    nextHop: (hubId) => (hubId === 'cut' ? undefined : { dial }),
    sessions: [
      ...Array.from({ length: 1200 }, (_, n) => session(`lost${n}`, 'cut', named)),
      session('other', 'h1', { identifiers: { ...nothing, defaultRoute: true } }),
    ],
  });
  assert.deepEqual(told(answer)[1], ['other: taken']);
  assert.equal(answer.steps[0]?.candidates.length, 999);
  assert.equal(answer.steps[0]?.keys[0]?.sessions, 1200);
});

test('of the sessions that no strategy finds, a hundred are listed', () => {
  const own = { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } };
  const told = asked({
    strategies: ['destHost', 'destCIDR'],
    sessions: [...Array.from({ length: 2000 }, (_, n) => session(`s${n}`, 'h1')), session('mine', 'h1', own)],
  });
  assert.equal(told.others.length, 100);
  assert.equal(told.taken?.sessionId, 'mine');
});
