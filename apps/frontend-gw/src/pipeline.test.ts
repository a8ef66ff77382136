import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, Suspects } from '@isthmus/directory';
import { type Dial, DialLimiter, noTracer, planeEvents } from '@isthmus/tunnel';
import { gatewayStages } from './pipeline.ts';

function stages({ tenants = false, direct = false, resume = false } = {}): string[] {
  const all = gatewayStages({
    directory: new Directory(),
    strategies: ['default'],
    zone: '',
    parkTimeout: 0,
    hub: () => undefined,
    observation: { events: planeEvents(), tracer: noTracer },
    suspects: new Suspects(),
    limiter: new DialLimiter(),
    ...(tenants && { limits: () => assert.fail(), tenancy: { permits: () => undefined } }),
    ...(direct && { directly: { direct: (next: Dial) => next } }),
    ...(resume && { resumable: { resume: (next: Dial) => next } }),
  });
  return all.map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['observe', 'first: what any stage refuses is a dial with an outcome, and its time is the whole time'],
  ['limit', 'a dial that is refused or dropped must count; what waits below counts as pending, so it is bounded'],
  ['takeTurns', 'a dial over its limit takes no turn of what tenants share'],
  ['permit', 'a file may change while a dial waits, and the rules of the moment when it starts apply'],
  ['refuseWhenScarce', 'a forbidden dial is forbidden, also while descriptors are scarce: that error is final'],
  ['direct', 'a direct dial needs a descriptor too, and has no agent with which its tunnel could go on'],
  ['resume', 'only a dial that goes out needs the means to go on'],
  ['route', 'last: each of its attempts takes along what the stages before wrote into the dial'],
] as const;

test('a gateway of tenants passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    stages({ tenants: true, direct: true, resume: true }),
    ORDER.map(([name]) => name),
  );
});

test('a stage that does not apply is not there', () => {
  assert.deepEqual(stages(), ['observe', 'limit', 'refuseWhenScarce', 'route']);
  assert.deepEqual(stages({ resume: true }), ['observe', 'limit', 'refuseWhenScarce', 'resume', 'route']);
});
