import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dial, DialLimiter, noTracer, planeEvents } from '@isthmus/tunnel';
import { agentStages } from './pipeline.ts';

function stages({ rules = false, simulated = false } = {}): string[] {
  const all = agentStages({
    agentId: 'a1',
    observation: { events: planeEvents(), tracer: noTracer },
    limiter: new DialLimiter(),
    rules: rules ? { permit: (next: Dial) => next } : undefined,
    ...(simulated && { network: (next: Dial) => next }),
  });
  return all.map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['observe', 'first: what any stage refuses is a dial with an outcome, and its time is the whole time'],
  ['limit', 'a dial that is refused must count; what waits for rules below counts as pending, so it is bounded'],
  ['permit', 'dials beyond the limit do not wait for rules'],
  ['refuseWhenScarce', 'descriptors may become scarce while a dial waits for rules'],
  ['network', 'a simulated network replaces nothing but the way to the socket'],
  ['connect', 'last: it judges each resolved address by the rules that a stage before wrote into the dial'],
] as const;

test('a simulated agent of a tenant passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    stages({ rules: true, simulated: true }),
    ORDER.map(([name]) => name),
  );
});

test('a stage that does not apply is not there', () => {
  assert.deepEqual(stages(), ['observe', 'limit', 'refuseWhenScarce', 'connect']);
});
