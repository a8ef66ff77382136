import assert from 'node:assert/strict';
import { test } from 'node:test';
import { simulate } from './simulate.ts';

/** `npm run simulate` runs a million, continuous integration a hundred thousand. */
const SCHEDULES = 1000;

test(`a tunnel outlives what carries it, in ${SCHEDULES} random schedules`, () => {
  let killed = 0;
  for (let seed = 1; seed <= SCHEDULES; seed++) {
    const { faults, outcomes, gatewaysKilled } = simulate(seed);
    assert.deepEqual(faults, [], `seed ${seed} ended as ${outcomes.join(' and ')}`);
    killed += gatewaysKilled;
  }
  assert.ok(killed > SCHEDULES / 10, `only ${killed} gateways were killed under halves at isthmus hold`);
});
