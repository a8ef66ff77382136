import assert from 'node:assert/strict';
import { test } from 'node:test';
import { simulate } from './simulate.ts';

const SCHEDULES = 10_000;

test(`a tunnel outlives what carries it, in ${SCHEDULES} random schedules`, () => {
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const { faults, outcomes } = simulate(seed);
    assert.deepEqual(faults, [], `seed ${seed} ended as ${outcomes.join(' and ')}`);
  }
});
