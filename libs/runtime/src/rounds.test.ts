import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Rounds, type TakesTurns } from './collections.ts';

class Member implements TakesTurns {
  next: this | undefined = undefined;
  credit = 0;
  spent = 0;
  left: number;
  readonly cost: () => number;

  constructor(left: number, cost: () => number) {
    this.left = left;
    this.cost = cost;
  }
}

/** The same numbers for the same seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2 ** 31;
    return state / 2 ** 31;
  };
}

/** Lets the one whose turn it is do one thing. */
function step(rounds: Rounds<Member>): Member {
  const member = rounds.current as Member;
  const cost = Math.min(member.left, member.cost());
  member.left -= cost;
  member.spent += cost;
  if (member.left > 0) rounds.spend(cost);
  else rounds.leave();
  return member;
}

test('members with different costs spend alike while all have something to do', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const next = random(seed);
    const [quantum, most] = [100, 100];
    const rounds = new Rounds<Member>(quantum);
    const members = Array.from({ length: 2 + Math.floor(next() * 20) }, () => {
      const largest = 1 + Math.floor(next() * most);
      return new Member(Number.POSITIVE_INFINITY, () => 1 + Math.floor(next() * largest));
    });
    for (const member of members) rounds.enter(member);
    for (let i = 0; i < 20_000; i++) {
      step(rounds);
      const spent = members.map((member) => member.spent);
      // Each turn spends a quantum, and may overdraw by one cost.
      const apart = Math.max(...spent) - Math.min(...spent);
      assert.ok(apart <= 2 * (quantum + most), `seed ${seed}: ${spent}`);
    }
  }
});

test('members that come and go have their turn within a round, and do not get ahead', () => {
  for (let seed = 1; seed <= 50; seed++) {
    const next = random(seed);
    const rounds = new Rounds<Member>(10);
    const busy = Array.from(
      { length: 1 + Math.floor(next() * 5) },
      () => new Member(Number.POSITIVE_INFINITY, () => 3),
    );
    for (const member of busy) rounds.enter(member);
    const guest = new Member(0, () => 10);
    const most = busy.length * (10 + 3);
    for (let i = 0; i < 500; i++) {
      // It always asks for what fits into a turn, and never waits for another.
      guest.left = 10;
      rounds.enter(guest);
      let before = 0;
      while (guest.left > 0) {
        const member = step(rounds);
        if (member !== guest) before += 3;
      }
      assert.ok(before <= most, `seed ${seed}: ${before} came first`);
    }
    const least = Math.min(...busy.map(({ spent }) => spent));
    assert.ok(guest.spent <= least + 20, `seed ${seed}: ${guest.spent} of ${least}`);
  }
});

test('a cost of many quanta is paid for with many turns', () => {
  const rounds = new Rounds<Member>(10);
  const large = new Member(Number.POSITIVE_INFINITY, () => 1000);
  const small = new Member(Number.POSITIVE_INFINITY, () => 1);
  rounds.enter(large);
  rounds.enter(small);
  for (let i = 0; i < 20_000; i++) step(rounds);
  assert.ok(Math.abs(large.spent - small.spent) <= 1010, `${large.spent} and ${small.spent}`);
});

test('one alone keeps the turn, and the last to leave leaves nothing', () => {
  const rounds = new Rounds<Member>(10);
  const [a, b] = [new Member(100, () => 7), new Member(5, () => 5)] as const;
  rounds.enter(a);
  rounds.enter(a);
  assert.equal(rounds.size, 1);
  for (let i = 0; i < 5; i++) assert.equal(step(rounds), a);
  rounds.enter(b);
  while (rounds.size > 0) step(rounds);
  assert.deepEqual([a.left, b.left, rounds.current, a.next, b.next], [0, 0, undefined, undefined, undefined]);
});
