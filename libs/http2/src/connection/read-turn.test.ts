import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReadTurn, TurnReader } from './read-turn.ts';

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
