import assert from 'node:assert/strict';
import { test } from 'node:test';
import { aHub, aList, aSession } from '@isthmus/findings/testing';
import { aMember, aPlane } from '../testing.ts';
import { findingsOf } from './findings.ts';
import type { Plane } from './plane.ts';

const hubs = [aHub('h1'), aHub('h2')];

/** A plane that is well, with what a test gives. */
function found(given: Partial<Plane> = {}): string[] {
  const members = [aMember('g1', { self: true, list: aList({ hubs }) }), aMember('h1', { roles: ['hub'] })];
  const sessions = [aSession(), aSession({ hubId: 'h2' })];
  return findingsOf(aPlane({ members, hubs, sessions, ...given })).map(({ outcome, check, about, detail }) => {
    return `${outcome} ${check} ${about}: ${detail}`;
  });
}

test('of a plane that is well there is nothing to say, and nothing before it was looked at', () => {
  assert.deepEqual(found(), []);
  assert.deepEqual(found({ at: 0, sessions: [] }), []);
});

test('failures come first', () => {
  const members = [
    aMember('g1', { list: aList({ hubs: [aHub('h1', { link: 3 }), aHub('h2')] }) }),
    { ...aMember('h1'), status: undefined, silent: 'no answer' },
  ];
  const outcomes = found({ members, sessions: [aSession()] }).map((line) => line.split(' ')[0]);
  assert.deepEqual(outcomes, ['fail', 'fail', 'warn']);
});

test('a thousand agents with one hub are twenty lines and a sum', () => {
  const sessions = Array.from({ length: 1000 }, (_, n) => aSession({ agentId: `a${n}` }));
  const lines = found({ sessions });
  assert.equal(lines.length, 21);
  assert.match(lines.at(-1) ?? '', /980 more: as a20, which has a session with only h1, of 2 hubs$/);
});
