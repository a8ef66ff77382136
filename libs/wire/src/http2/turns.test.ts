import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { Closings, ReadTurn, TurnReader } from './turns.ts';

/** Closings whose turns the test runs. */
function rig() {
  const turns: (() => void)[] = [];
  const closings = new Closings((next) => void turns.push(next));
  const called: number[] = [];
  return {
    closings,
    called,
    end(count: number) {
      for (let added = 0; added < count; added++) {
        const id = ends++;
        closings.add(() => void called.push(id));
      }
    },
    /** Runs a turn of the event loop. @returns whether there was anything to run */
    turn() {
      const next = turns.shift();
      next?.();
      return next !== undefined;
    },
  };
}

let ends = 0;

describe('ends of streams and connections', () => {
  it('are acted upon at once while they are few', () => {
    ends = 0;
    const { called, end } = rig();
    end(2);
    assert.deepEqual(called, [0, 1]);
  });

  it('are spread over turns of the event loop when they are many, in their order', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(100);
    const each: number[] = [called.length];
    while (turn()) each.push(called.length - each.reduce((sum, count) => sum + count, 0));
    assert.deepEqual(
      called,
      Array.from({ length: 100 }, (_, id) => id),
    );
    const most = Math.max(...each);
    assert.ok(most <= 16, `${most} in one turn`);
  });

  it('wait behind those that came before', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(100);
    turn();
    const before = called.length;
    end(1);
    assert.equal(called.length, before);
    while (turn());
    assert.equal(called.at(-1), 100);
  });

  it('are acted upon at once again after a calm turn', () => {
    ends = 0;
    const { called, end, turn } = rig();
    end(50);
    while (turn());
    end(1);
    assert.equal(called.at(-1), 50);
  });
});

const KIB = 1024;

/** Turns that end when the test says so. */
function turns() {
  let end = () => {};
  const readTurn = new ReadTurn((next) => {
    end = next;
  });
  return { readTurn, end: () => end() };
}

test('a connection with much to read rests once a turn has read 512 KiB, and reads on in the next', () => {
  const { readTurn, end } = turns();
  const bulk = new TurnReader();
  const reads = () => Array.from({ length: 9 }, () => readTurn.count(bulk, 64 * KIB));
  const rests = [...Array(7).fill(false), true, true];
  assert.deepEqual(reads(), rests);
  end();
  assert.deepEqual(reads(), rests);
});

test('all connections share a turn', () => {
  const { readTurn } = turns();
  const rest = Array.from({ length: 8 }, () => {
    const reader = new TurnReader();
    return [readTurn.count(reader, 64 * KIB), readTurn.count(reader, 64 * KIB)];
  });
  assert.deepEqual(rest.slice(0, 3).flat(), Array(6).fill(false));
  assert.deepEqual(rest.slice(4), Array(4).fill([false, true]));
});

test('a connection with little to read never rests', () => {
  const { readTurn } = turns();
  const [bulk, quiet] = [new TurnReader(), new TurnReader()];
  for (let read = 0; read < 16; read++) readTurn.count(bulk, 64 * KIB);
  assert.equal(readTurn.count(quiet, 100), false);
});
