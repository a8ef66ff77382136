import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type HubMember, TRANSPORT } from '@isthmus/transport';
import {
  assess,
  type Held,
  type KnownHubs,
  membershipOf,
  type Report,
  ranking,
  silent,
  updated,
} from './membership.ts';

function hub(hubId: string, more: Partial<HubMember> = {}): HubMember {
  return { hubId, address: `${hubId}:8091`, zone: '', draining: false, generation: 1, ...more };
}

function told(...hubs: HubMember[]) {
  return { type: 'membership', current: true, hubs } as const;
}

function change(changed: HubMember[], gone: string[] = [], current = true) {
  return { type: 'membership-change', current, changed, gone } as const;
}

/** Links of one agent, each with what its hub reported. */
class Links {
  now = 0;
  readonly reports = new Map<string, Report>();
  last: Report | undefined;

  begin(link: string): void {
    this.reports.set(link, silent(this.now));
  }

  hear(link: string, message: Parameters<typeof updated>[1]): void {
    this.reports.set(link, updated(this.reports.get(link), message, this.now));
  }

  end(link: string): void {
    const report = this.reports.get(link);
    this.reports.delete(link);
    if (report && report.hubs.size > 0) this.last = report;
  }

  get membership(): KnownHubs {
    return membershipOf([...this.reports.values()], this.last, this.now);
  }
}

test('changes are applied to what the same link told, and a new list replaces it', () => {
  const links = new Links();
  links.hear('link', told(hub('a'), hub('b')));
  links.hear('link', change([hub('b', { draining: true }), hub('c')], ['a']));
  assert.deepEqual(links.membership.hubs, [hub('b', { draining: true }), hub('c')]);
  links.hear('link', told(hub('d')));
  assert.deepEqual(links.membership.hubs, [hub('d')]);
});

test('of what links say about one hub the later generation holds, and that it drains', () => {
  const links = new Links();
  links.hear('left', told(hub('a'), hub('b', { generation: 2 }), hub('c')));
  links.hear('right', told(hub('a', { draining: true }), hub('b'), hub('d')));
  assert.deepEqual(links.membership.hubs, [
    hub('a', { draining: true }),
    hub('b', { generation: 2 }),
    hub('c'),
    hub('d'),
  ]);
});

test('what is not renewed in time is not believed any more', () => {
  const links = new Links();
  links.hear('link', told(hub('a')));
  links.now = TRANSPORT.membershipTtlMs - 1;
  links.hear('link', change([]));
  links.now = 2 * TRANSPORT.membershipTtlMs - 2;
  assert.deepEqual([links.membership.hubs, links.membership.registry], [[hub('a')], 'answers']);
  links.now++;
  const { hubs, stale, registry } = links.membership;
  assert.deepEqual([hubs, stale, registry], [[hub('a')], true, 'away'], 'an address may still be right');
  links.hear('link', change([hub('b')]));
  assert.deepEqual(links.membership.hubs, [hub('a'), hub('b')]);
});

test('where to connect without a link is what the last one said, and after its time also of hubs that drained', () => {
  const links = new Links();
  links.hear('left', told(hub('a'), hub('b')));
  links.hear('right', told(hub('b'), hub('c', { draining: true })));
  links.end('left');
  const known = [hub('b'), hub('c', { draining: true })];
  assert.deepEqual(links.membership.hubs, known);
  links.end('right');
  assert.deepEqual(links.membership, { hubs: known, stale: false });
  links.begin('silent');
  links.end('silent');
  assert.deepEqual(links.membership.hubs, known);
  links.now = TRANSPORT.membershipTtlMs;
  assert.deepEqual(links.membership, { hubs: [hub('b'), hub('c')], stale: true });
});

test('a link that is there and has not told yet says neither that its registry answers nor that it is away', () => {
  const links = new Links();
  links.hear('old', told(hub('a')));
  links.begin('fresh');
  assert.equal(links.membership.registry, undefined);
  links.hear('fresh', told(hub('a')));
  assert.equal(links.membership.registry, 'answers');
  links.hear('fresh', change([], [], false));
  assert.equal(links.membership.registry, 'away');
  links.end('fresh');
  links.begin('third');
  links.now = TRANSPORT.membershipTtlMs - 1;
  links.hear('old', change([]));
  links.now = TRANSPORT.membershipTtlMs;
  assert.equal(links.membership.registry, 'away', 'it never told');
});

test('the registry answers when it answers every hub that is connected', () => {
  const links = new Links();
  assert.equal(links.membership.registry, undefined);
  links.hear('left', told(hub('a')));
  assert.equal(links.membership.registry, 'answers');
  links.hear('right', change([], [], false));
  assert.equal(links.membership.registry, 'away');
  links.end('right');
  assert.equal(links.membership.registry, 'answers');
});

test('a hub that tells of ever more hubs is not remembered without bound', () => {
  const links = new Links();
  for (let index = 0; index < 5000; index++) links.hear('link', change([hub(`h${index}`)]));
  assert.equal(links.membership.hubs.length, 1024);
});

const HUBS = ['a', 'b', 'c', 'd'].map((hubId) => hub(hubId));
const SELF = { agentId: 'agent-1', zone: '' };

test('hubs of the own zone come first, and hubs that drain not at all', () => {
  const [first, second, third, fourth] = ranking(SELF, HUBS).map(({ hubId }) => hubId);
  const hubs = HUBS.map((one) => ({ ...one, zone: one.hubId === fourth ? 'z' : 'y', draining: one.hubId === first }));
  const ranked = ranking({ ...SELF, zone: 'z' }, hubs).map(({ hubId }) => hubId);
  assert.deepEqual(ranked, [fourth, second, third]);
});

test('a hub that joins moves its own share and no more', () => {
  const best = (agentId: string, hubs: readonly HubMember[]) =>
    ranking({ agentId, zone: '' }, hubs)
      .slice(0, 2)
      .map(({ hubId }) => hubId);
  for (let index = 0; index < 1000; index++) {
    const before = best(`agent-${index}`, HUBS);
    const after = best(`agent-${index}`, [...HUBS, hub('e')]);
    const kept = after.filter((hubId) => before.includes(hubId)).length;
    assert.equal(kept, after.includes('e') ? 1 : 2);
  }
});

const [first, second, third, fourth] = ranking(SELF, HUBS).map(({ hubId }) => hubId) as [
  string,
  string,
  string,
  string,
];

function held(serverId: string, open = 0, plane = 'p'): Held {
  return { serverId, plane, open, leave: () => assert.fail() };
}

function assessed(
  sessions: readonly Held[],
  more: { readonly sessionCount?: number | 'all'; readonly serverCount?: number } = {},
) {
  const report = updated(undefined, { type: 'membership', current: true, hubs: HUBS }, 0);
  const membership = membershipOf([report], undefined, 0);
  const known = { ...SELF, sessionCount: 2, membership, serverCount: 1, sessions, ...more };
  const { wanted, candidates, better, displaced } = assess(known);
  return {
    wanted,
    candidates: candidates.map(({ hubId }) => hubId),
    better: better.map(({ hubId }) => hubId),
    displaced: displaced.map(({ serverId }) => serverId),
  };
}

test('what is missing is sought by rank, and what is connected worse than it could be is displaced', () => {
  const { wanted, candidates, better, displaced } = assessed([held(third), held(first)]);
  assert.deepEqual([wanted, candidates, better, displaced], [2, [second, fourth], [second], [third]]);
  assert.deepEqual(assessed([held(second), held(first)]).displaced, []);
});

test('of two that are displaced the one without tunnels goes first, then the worse', () => {
  assert.deepEqual(assessed([held(third), held(fourth)]).displaced, [fourth, third]);
  assert.deepEqual(assessed([held(third), held(fourth, 1)]).displaced, [third, fourth]);
});

test('with fewer hubs than sessions each is wanted, and with all every one', () => {
  assert.equal(assessed([held(first)], { sessionCount: 9 }).wanted, 4);
  const all = assessed([held(first)], { sessionCount: 'all' });
  assert.deepEqual([all.wanted, all.displaced], [4, []]);
});

test('a hub that nobody lists keeps its session', () => {
  assert.deepEqual(assessed([held('unlisted'), held(first)]).displaced, []);
});

test('servers that share no plane are all wanted, by their count', () => {
  const { wanted, better, displaced } = assessed([held('s1', 0, '')], { serverCount: 3 });
  assert.deepEqual([wanted, better, displaced], [3, [], []]);
});
