import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { HubMember } from '@isthmus/transport';
import { assess, type Coverage, type Held, ranking } from './coverage.ts';

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

function assessed(uplinks: readonly Held[], more: Partial<Coverage> = {}) {
  const coverage = { ...AGENT, sessionCount: 2, hubs: HUBS, known: HUBS, serverCount: 1, uplinks, ...more };
  const { wanted, candidates, better, displaced } = assess(coverage);
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

test('hubs of the own zone come first, and hubs that drain not at all', () => {
  const hubs = HUBS.map((one) => ({ ...one, zone: one.hubId === fourth ? 'z' : 'y', draining: one.hubId === first }));
  const ranked = ranking({ ...AGENT, zone: 'z' }, hubs).map(({ hubId }) => hubId);
  assert.deepEqual(ranked, [fourth, second, third]);
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
