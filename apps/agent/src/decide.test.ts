import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HubMember } from '@isthmus/transport';
import { assess, type Held, membershipOf, ranking, updated } from './upkeep.ts';

function hub(hubId: string, more: Partial<HubMember> = {}): HubMember {
  return { hubId, address: `${hubId}:1`, zone: '', draining: false, generation: 1, ...more };
}

const HUBS = ['a', 'b', 'c', 'd'].map((hubId) => hub(hubId));
const AGENT = { agentId: 'agent-1', zone: '' };
const [first, second, third, fourth] = ranking(AGENT, HUBS).map(({ hubId }) => hubId) as [
  string,
  string,
  string,
  string,
];

function held(serverId: string, open = 0, plane = 'p'): Held {
  return { serverId, plane, open };
}

function assessed(
  sessions: readonly Held[],
  more: { readonly sessionCount?: number | 'all'; readonly serverCount?: number } = {},
) {
  const report = updated(undefined, { type: 'membership', current: true, hubs: HUBS }, 0);
  const membership = membershipOf([report], undefined, 0);
  const known = { ...AGENT, sessionCount: 2, membership, serverCount: 1, sessions, ...more };
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
