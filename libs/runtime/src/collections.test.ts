import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Grouped, LruMap, OpenTable, Queue, RandomSet, Ring, Rounds, type TakesTurns } from './collections.ts';

test('the entry used longest ago makes room for another', () => {
  const map = new LruMap<string, number>(2);
  map.set('a', 1).set('b', 2);
  assert.equal(map.get('a'), 1);
  map.set('c', 3);
  assert.deepEqual(
    [...map],
    [
      ['a', 1],
      ['c', 3],
    ],
  );
  assert.equal(map.get('b'), undefined);
});

test('an entry that is written again counts once, and one that is deleted makes room', () => {
  const map = new LruMap<string, number>(2);
  map.set('a', 1).set('b', 2).set('a', 3);
  assert.deepEqual([...map.values()], [2, 3]);
  map.delete('b');
  map.set('c', 4);
  assert.deepEqual([...map.values()], [3, 4]);
});

test('a queue gives its items in order, however many come and go', () => {
  const queue = new Queue<number>();
  const taken: (number | undefined)[] = [];
  let next = 0;
  for (let round = 0; round < 100; round++) {
    for (let n = round % 7; n >= 0; n--) queue.push(next++);
    for (let n = round % 5; n >= 0; n--) taken.push(queue.shift());
  }
  queue.filter((item) => item % 2 === 0);
  const left = Array.from({ length: queue.size }, () => queue.shift());
  const items = taken.filter((item) => item !== undefined);
  assert.deepEqual(
    items,
    items.map((_, at) => at),
  );
  assert.deepEqual(
    left,
    Array.from({ length: next }, (_, at) => at).filter((at) => at >= items.length && at % 2 === 0),
  );
  assert.deepEqual([queue.size, queue.first, queue.shift()], [0, undefined, undefined]);
});

test('a ring returns its items, oldest first', () => {
  const ring = new Ring<number>(3);
  assert.deepEqual([...ring], []);
  ring.push(1);
  ring.push(2);
  assert.deepEqual([[...ring], ring.size, ring.forgotten], [[1, 2], 2, 0]);
});

test('a full ring forgets the oldest, and counts what it forgot', () => {
  const ring = new Ring<number>(3);
  for (let item = 1; item <= 8; item++) ring.push(item);
  assert.deepEqual([[...ring], ring.size, ring.forgotten], [[6, 7, 8], 3, 5]);
});

test('iterating a ring that fills meanwhile returns nothing twice and nothing new', () => {
  const ring = new Ring<number>(3);
  for (const item of [1, 2, 3]) ring.push(item);
  const seen: number[] = [];
  for (const item of ring) {
    seen.push(item);
    ring.push(item + 10);
    if (item === 1) ring.push(20);
  }
  assert.deepEqual(seen, [1, 3]);
});

test('what is open is found by its id until it is deleted', () => {
  const table = new OpenTable<number, string>();
  for (const id of [1, 3, 5]) table.set(id, `stream ${id}`);
  table.set(3, 'another');
  table.delete(1);
  table.delete(1);
  assert.equal(table.size, 2);
  assert.equal(table.get(1), undefined);
  assert.equal(table.get(3), 'another');
  assert.equal(table.has(5), true);
  assert.deepEqual([...table.values()], ['another', 'stream 5']);
});

test('what closes while the table is gone through is not seen any more', () => {
  const table = new OpenTable<number, number>();
  for (const id of [1, 3, 5]) table.set(id, id);
  const seen: number[] = [];
  for (const id of table.values()) {
    seen.push(id);
    table.delete(id);
    table.delete(3);
  }
  assert.deepEqual(seen, [1, 5]);
});

test('the group that has the most is known, however items come and go', () => {
  const items = new Grouped<number>();
  const groupOf = (item: number) => `group ${(item * item) % 11}`;
  const kept = new Set<number>();
  for (let i = 0; i < 2000; i++) {
    const item = (i * 7919) % 101;
    if (kept.delete(item)) items.delete(groupOf(item), item);
    else {
      kept.add(item);
      items.add(groupOf(item), item);
    }
    const counts = new Map<string, number>();
    for (const each of kept) counts.set(groupOf(each), (counts.get(groupOf(each)) ?? 0) + 1);
    assert.equal(items.most?.size, kept.size === 0 ? undefined : Math.max(...counts.values()));
    assert.deepEqual([...items.all], [...kept]);
  }
});

test('an item that comes twice counts once', () => {
  const items = new Grouped<string>();
  items.add('a', 'one');
  items.add('a', 'one');
  assert.deepEqual([items.size, items.most?.size], [1, 1]);
  items.delete('a', 'one');
  assert.deepEqual([items.size, items.most, items.of('a')], [0, undefined, undefined]);
});

test('a random set holds each member once, and keeps the others when one is deleted', () => {
  const [a, b, c] = [{}, {}, {}];
  const set = new RandomSet<object>();
  for (const member of [a, b, c, b]) set.add(member);
  assert.equal(set.size, 3);
  assert.equal(set.delete(a), true);
  assert.equal(set.delete(a), false);
  assert.equal(set.has(a), false);
  assert.deepEqual(new Set(set), new Set([b, c]));
  assert.equal(set.delete(c) && set.delete(b), true);
  assert.equal(set.size, 0);
});

test('a random set holds as it should, small or large', () => {
  const members = Array.from({ length: 100 }, () => ({}));
  const set = new RandomSet<object>();
  for (let round = 0; round < 2; round++) {
    for (const [index, member] of members.entries()) {
      set.add(member);
      set.add(member);
      assert.deepEqual([set.size, set.has(member)], [index + 1, true]);
    }
    for (const [index, member] of members.entries()) {
      assert.equal(set.delete(member), true);
      assert.deepEqual([set.size, set.has(member), set.delete(member)], [members.length - index - 1, false, false]);
      assert.deepEqual(new Set(set), new Set(members.slice(index + 1)));
    }
  }
});

test('members may be deleted while a random set is iterated', () => {
  const set = new RandomSet<object>();
  for (let i = 0; i < 5; i++) set.add({});
  let seen = 0;
  for (const member of set) {
    set.delete(member);
    seen++;
  }
  assert.equal(seen, 5);
  set.add({});
  set.clear();
  assert.equal(set.size, 0);
});

test('a random set draws each eligible member, and no other', () => {
  const members = Array.from({ length: 8 }, (_, place) => ({ place }));
  const set = new RandomSet<{ place: number }>();
  assert.equal(
    set.draw(Math.random, () => true),
    undefined,
  );
  for (const member of members) set.add(member);
  for (const { place } of members)
    assert.equal(
      set.draw(
        () => place / 8,
        () => true,
      )?.place,
      place,
    );
  for (const only of members)
    assert.equal(
      set.draw(Math.random, (member) => member === only),
      only,
    );
  assert.equal(
    set.draw(Math.random, () => false),
    undefined,
  );
});

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
