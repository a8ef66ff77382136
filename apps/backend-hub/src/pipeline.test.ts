import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noTracer, planeEvents } from '@isthmus/tunnel';
import { hubStages } from './pipeline.ts';

function stages(manyTenants: boolean): string[] {
  const observation = { events: planeEvents(), tracer: noTracer };
  return hubStages({ observation, manyTenants, session: () => assert.fail() }).map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['observe', 'first: what any stage refuses is a dial with an outcome, and its time is the whole time'],
  ['takeTurns', 'the wait is part of the time that this hub reports'],
  ['passOn', 'last: it answers with the stream'],
] as const;

test('a hub of tenants passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    stages(true),
    ORDER.map(([name]) => name),
  );
});

test('a hub of one tenant lets no dial wait', () => {
  assert.deepEqual(stages(false), ['observe', 'passOn']);
});
