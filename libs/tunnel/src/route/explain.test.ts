import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory } from '../replica/directory.ts';
import type { AgentIdentifiers, HubRecord, Quarantine, SessionRecord } from '../replica/records.ts';
import { established } from '../testing.ts';
import { type ExplainOptions, type Explanation, explain } from './explain.ts';

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

interface Asked extends Partial<Omit<ExplainOptions, 'directory'>> {
  readonly hubs?: HubRecord[];
  readonly sessions: SessionRecord[];
  readonly quarantines?: Quarantine[];
  readonly host?: string;
  readonly caller?: string;
  readonly ownHub?: string;
  /** Tunnels that are already open, by session. */
  readonly open?: Readonly<Record<string, number>>;
}

function asked({ hubs = [hub('h1')], sessions, quarantines = [], host = '10.1.2.3', ...rest }: Asked): Explanation {
  const { ownHub, open = {}, caller, ...more } = rest;
  const directory = new Directory({ random: () => 0, ...(ownHub !== undefined && { ownHub }) });
  directory.reset({ hubs, sessions, quarantines });
  for (const { route } of directory.placed('default')) route.open = open[route.record.sessionId] ?? 0;
  return explain(
    {
      directory,
      strategies: ['default'],
      zone: '',
      hub: () => async () => established(),
      suspects: new Set(),
      ...more,
    },
    'default',
    { host, port: 443 },
    caller,
  );
}

/** Each candidate as `session: standing, why`. */
function told({ steps }: Explanation): string[][] {
  return steps.map(({ candidates }) =>
    candidates.map(({ session: { sessionId }, standing, why }) => `${sessionId}: ${standing}${why && `, ${why}`}`),
  );
}

const CHANCE = 'just as good: chance and fewer open tunnels decide';

test('one of several equally good sessions is taken', () => {
  const explained = asked({ sessions: [session('a', 'h1'), session('b', 'h1')] });
  const taken = explained.taken?.sessionId;
  assert.deepEqual(told(explained)[0]?.sort(), [
    taken === 'a' ? 'a: taken' : `a: equal, ${CHANCE}`,
    taken === 'b' ? 'b: taken' : `b: equal, ${CHANCE}`,
  ]);
});

test('strategies are listed in order with the keys that they look up, longest prefix first', () => {
  const cidr = (...prefixes: string[]) => ({ identifiers: { ...nothing, cidr: prefixes } });
  const explained = asked({
    strategies: ['destHost', 'destCIDR', 'default'],
    sessions: [session('wide', 'h1', cidr('10.0.0.0/8')), session('narrow', 'h1', cidr('10.1.0.0/16', '10.9.0.0/24'))],
  });
  assert.deepEqual(
    explained.steps.map(({ strategy, keys }) => [strategy, ...keys.map(({ key, sessions }) => `${key} (${sessions})`)]),
    [
      ['destHost', '10.1.2.3 (0)'],
      ['destCIDR', '10.1.2.0/24 (0)', '10.1.0.0/16 (1)', '10.0.0.0/8 (1)'],
      ['default', 'any (2)'],
    ],
  );
  assert.deepEqual(told(explained).slice(0, 2), [
    [],
    ['narrow: taken', 'wide: later, a longer prefix leads to another session'],
  ]);
  for (const line of told(explained)[2] ?? []) assert.match(line, /later, strategy destCIDR comes first/);
});

test('IPv6 prefixes are shown as they are written', () => {
  const identifiers = { ...nothing, cidr: ['2001:db8::/32'] };
  const explained = asked({
    strategies: ['destCIDR'],
    host: '2001:db8::7',
    sessions: [session('six', 'h1', { identifiers })],
  });
  assert.deepEqual(explained.steps[0]?.keys, [{ key: '2001:db8::/32', sessions: 1 }]);
});

test('each session says why it ranks behind another', () => {
  const explained = asked({
    zone: 'a',
    hubs: [hub('near', { zone: 'a' }), hub('far', { zone: 'b' }), hub('leaves', { draining: true }), hub('cut')],
    hub: (hubId) => (hubId === 'cut' ? undefined : async () => established()),
    suspects: new Set(['silent']),
    quarantines: [{ tenant: 'default', agentId: 'agent of sick', reason: 'it loses packets', version: 1 }],
    sessions: [
      ...['good', 'silent', 'sick'].map((id) => session(id, 'near')),
      ...[session('distant', 'far'), session('moving', 'leaves'), session('lost', 'cut')],
    ],
  });
  assert.equal(explained.taken?.sessionId, 'good');
  assert.deepEqual(told(explained), [
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
  const explained = asked({
    strategies: ['destHost', 'default'],
    hubs: [hub('h1'), hub('cut')],
    hub: (hubId) => (hubId === 'cut' ? undefined : async () => established()),
    sessions: [session('named', 'cut', { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } }), session('other', 'h1')],
  });
  assert.deepEqual(told(explained), [
    ['named: not, no link to hub cut'],
    ['other: taken', 'named: not, no link to hub cut'],
  ]);
});

test('sessions that no strategy finds are listed separately, and those of other tenants not at all', () => {
  const explained = asked({
    strategies: ['destHost'],
    sessions: [session('a', 'h1'), session('foreign', 'h1', { tenant: 'acme' })],
  });
  assert.equal(explained.taken, undefined);
  assert.deepEqual(
    explained.others.map(({ session: { sessionId }, standing }) => `${sessionId}: ${standing}`),
    ['a: not'],
  );
});

test('a session that matches two prefixes is found by the longer one', () => {
  const explained = asked({
    strategies: ['destCIDR'],
    sessions: [session('both', 'h1', { identifiers: { ...nothing, cidr: ['10.0.0.0/8', '10.1.0.0/16'] } })],
  });
  assert.deepEqual(told(explained), [['both: taken', 'both: later, a longer prefix leads to it already']]);
});

test('the taken session is listed, however many sessions earlier strategies find', () => {
  const named = { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } };
  const explained = asked({
    strategies: ['destHost', 'defaultRoute'],
    hubs: [hub('h1'), hub('cut')],
    hub: (hubId) => (hubId === 'cut' ? undefined : async () => established()),
    sessions: [
      ...Array.from({ length: 1200 }, (_, n) => session(`lost${n}`, 'cut', named)),
      session('other', 'h1', { identifiers: { ...nothing, defaultRoute: true } }),
    ],
  });
  assert.deepEqual(told(explained)[1], ['other: taken']);
  assert.equal(explained.steps[0]?.candidates.length, 999);
  assert.equal(explained.steps[0]?.keys[0]?.sessions, 1200);
});

test('only sessions that the destination matches are inspected, and each hub once', () => {
  const hubs: string[] = [];
  const asks: string[] = [];
  const own = { identifiers: { ...nothing, ipv4: ['10.1.2.3'] } };
  const explained = asked({
    strategies: ['destHost', 'destCIDR'],
    hub: (hubId) => {
      hubs.push(hubId);
      return async () => established();
    },
    suspects: {
      has(id) {
        asks.push(id);
        return false;
      },
    },
    sessions: [
      ...Array.from({ length: 2000 }, (_, n) => session(`s${n}`, 'h1')),
      ...[session('mine', 'h1', own), session('also', 'h1', own)],
    ],
  });
  assert.equal(explained.others.length, 100);
  assert.deepEqual(hubs, ['h1']);
  assert.equal(asks.length, 1 + 2 + 100);
});

test("a dial that the tenant's policy refuses is not routed, and one that it allows is, with the rule", () => {
  const told: unknown[] = [];
  const policy: NonNullable<ExplainOptions['policy']> = (...dial) => {
    told.push(dial);
    return dial[2] === 'operator' ? { allowed: true, rule: 'pods' } : { allowed: false, rule: 'deny[0]' };
  };
  const sessions = [session('a', 'h1')];
  const refused = asked({ sessions, policy });
  assert.deepEqual(refused, { policy: { allowed: false, rule: 'deny[0]' }, steps: [], others: [], taken: undefined });
  const allowed = asked({ sessions, policy, caller: 'operator' });
  assert.deepEqual([allowed.policy, allowed.taken?.sessionId], [{ allowed: true, rule: 'pods' }, 'a']);
  const destination = { host: '10.1.2.3', port: 443 };
  assert.deepEqual(told, [
    ['default', destination, ''],
    ['default', destination, 'operator'],
  ]);
  assert.equal(asked({ sessions, policy: () => undefined }).policy, undefined);
});
