import assert from 'node:assert/strict';
import test from 'node:test';
import type { DialRecord } from '../rig/load/messages.ts';
import { judge, type Seen } from './figures.ts';
import type { Strike } from './row.ts';

const dial: DialRecord = { protocol: 'grpc', first: 0, by: 0, at: 1000, ms: 5, outcome: 'ok' };
const strike: Strike = { at: 2000, over: 2000, tunnels: new Set([1, 2]), outlive: new Set(), fatal: true };

function seen(parts: Partial<Seen>): Seen {
  return { dials: [dial], cuts: [], pauses: [], ends: [], strikes: [], before: 5, timed: true, ...parts };
}

function problems(parts: Partial<Seen>, bounds = {}): readonly string[] {
  return judge(seen(parts), bounds, []).problems;
}

test('a row without faults holds', () => {
  assert.deepEqual(problems({}, { dialMs: 5 }), []);
});

test('a failed dial is a problem, and equal reasons are counted', () => {
  const failed: DialRecord = { ...dial, outcome: 'failed', error: 'no agent' };
  assert.deepEqual(problems({ dials: [dial, failed, failed] }), ['2 dials failed: grpc: no agent (2)']);
});

test('a slow dial is a problem only if the row bounds it', () => {
  const slow = { ...dial, ms: 1001 };
  assert.deepEqual(problems({ dials: [slow] }), []);
  assert.deepEqual(problems({ dials: [slow] }, { dialMs: 1000 }), [
    'the slowest dial took 1001, and the limit is 1000',
  ]);
});

test('only a dial that was under way through a killed gateway may fail', () => {
  const failed: DialRecord = { ...dial, outcome: 'failed', error: 'broke', at: 1990, ms: 20 };
  const kill = { ...strike, tunnels: new Set<number>(), gateway: 0 };
  assert.deepEqual(problems({ dials: [failed], strikes: [kill] }), []);
  assert.equal(problems({ dials: [{ ...failed, first: 1, by: 1 }], strikes: [kill] }).length, 1);
  assert.equal(problems({ dials: [{ ...failed, at: 2200 }], strikes: [kill] }).length, 1);
  assert.equal(problems({ dials: [{ ...failed, at: 1900, ms: 20 }], strikes: [kill] }).length, 1);
});

test('only tunnels that a strike took may be cut, once per strike, and all of them must end', () => {
  const cut = (tunnel: number, at: number) => ({ tunnel, at, how: 'ended' });
  const ends = [1, 2].map((tunnel) => ({ tunnel, at: 2100 }));
  const both = [cut(1, 2010), cut(2, 2300)];
  const held = judge(seen({ cuts: both, ends, strikes: [strike] }), { callersEndMs: 300 }, []);
  assert.deepEqual(held.problems, []);
  assert.equal(held.figures.callersEnd, 300);
  assert.equal(held.figures.destinationsEnd, 100);
  assert.deepEqual(problems({ cuts: [...both, cut(3, 2010)], ends, strikes: [strike] }), [
    '1 tunnels were cut that the fault did not touch: tunnel 3: ended (1)',
  ]);
  assert.equal(problems({ cuts: [...both, cut(1, 2400)], ends, strikes: [strike] }).length, 1);
  assert.equal(problems({ cuts: [cut(1, 1999), cut(2, 2001)], ends, strikes: [strike] }).length, 2);
  assert.deepEqual(problems({ cuts: [cut(1, 2001)], ends, strikes: [strike] }), [
    '1 tunnels through the failed part did not end: tunnel 2 (1)',
  ]);
});

test('a destination socket that never ends is too late', () => {
  const cuts = [1, 2].map((tunnel) => ({ tunnel, at: 2001, how: 'ended' }));
  const ends = [{ tunnel: 1, at: 2050 }];
  assert.match(problems({ cuts, ends, strikes: [strike] }, { destinationsEndMs: 3000 }).join(), /Infinity/);
});

test('a short tunnel may be cut if a strike met it, but not if it was dialled later', () => {
  const short: DialRecord = { ...dial, outcome: 'cut', error: 'ended', at: 1990, ms: 9, endedAt: 2001 };
  assert.deepEqual(problems({ dials: [short], strikes: [{ ...strike, tunnels: new Set() }] }), []);
  const later = { ...short, at: 2500, endedAt: 2600 };
  assert.equal(problems({ dials: [later], strikes: [{ ...strike, tunnels: new Set() }] }).length, 1);
});

test('a measure beyond its bound is a problem', () => {
  const measures = [{ name: 'detected after', value: 3100, unit: 'ms', most: 3000 } as const];
  assert.deepEqual(judge(seen({}), {}, measures).problems, ['detected after: 3100, and the limit is 3000']);
});

test('without bounds on time, counts are still judged, and so is anything that never happened', () => {
  const slow = { ...dial, ms: 1001 };
  const measures = [
    { name: 'detected after', value: 3100, unit: 'ms', most: 3000 },
    { name: 'sessions ended', value: 1, unit: '', most: 0 },
  ] as const;
  const cuts = [1, 2].map((tunnel) => ({ tunnel, at: 5000, how: 'ended' }));
  const bounds = { dialMs: 1000, callersEndMs: 1000, destinationsEndMs: 1000 };
  assert.deepEqual(judge(seen({ dials: [slow], cuts, strikes: [strike], timed: false }), bounds, measures).problems, [
    'destination sockets ended after Infinity, and the limit is 1000',
    'sessions ended: 1, and the limit is 0',
  ]);
});

test('a tunnel that a strike touches must go on, and its pause is bounded', () => {
  const touched: Strike = { at: 2000, over: 2000, tunnels: new Set(), outlive: new Set([1, 2]), fatal: false };
  const strikes = [touched];
  const pauses = [
    { tunnel: 1, at: 1900, ms: 5000 },
    { tunnel: 1, at: 2300, ms: 301 },
    { tunnel: 3, at: 2300, ms: 9000 },
  ];
  assert.deepEqual(problems({ strikes, pauses }, { pauseMs: 301 }), []);
  assert.deepEqual(problems({ strikes, pauses }, { pauseMs: 300 }), [
    'tunnels that went on paused for 301, and the limit is 300',
  ]);
  assert.equal(problems({ strikes, cuts: [{ tunnel: 1, at: 2100, how: 'closed' }] }).length, 1);
});
