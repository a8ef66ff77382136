import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Directory, Suspects } from '@isthmus/directory';
import { memory } from '@isthmus/runtime';
import {
  type Attach,
  type Attached,
  AttachRefused,
  type AttachRequest,
  DialError,
  DialLimiter,
  planeEvents,
  type Stage,
} from '@isthmus/tunnel';
import { DEFAULT_LIMITS } from '@isthmus/tunnel/limits';
import { gatewayAttach, gatewayStages } from './pipeline.ts';

function stages({ tenants = false, resume = false } = {}) {
  return gatewayStages({
    directory: new Directory(),
    strategies: ['default'],
    gatewayId: 'g1',
    zone: '',
    parkTimeout: 0,
    nextHop: () => undefined,
    observation: { events: planeEvents() },
    suspects: new Suspects(),
    limiter: new DialLimiter(),
    ...(tenants && { tenancy: { permits: () => undefined } }),
    ...(resume && { gatewayTunnels: { resume: { name: 'resume', enter: () => undefined } } }),
  });
}

function names(of: Parameters<typeof stages>[0] = {}): string[] {
  return stages(of).map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['limit', 'a dial that is refused or dropped must count; what waits below counts as pending, so it is bounded'],
  ['takeTurns', 'a dial over its limit takes no turn of what tenants share'],
  ['permit', 'a file may change while a dial waits, and the rules of the moment when it starts apply'],
  ['refuseWhenScarce', 'a forbidden dial is forbidden, also while descriptors are scarce: that error is final'],
  [
    'resume',
    'last: each attempt takes along what it wrote into the dial, and its tunnel is what the others then count',
  ],
] as const;

test('a gateway of tenants passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    names({ tenants: true, resume: true }),
    ORDER.map(([name]) => name),
  );
});

test('a stage that does not apply is not there', () => {
  assert.deepEqual(names(), ['limit', 'refuseWhenScarce']);
  assert.deepEqual(names({ resume: true }), ['limit', 'refuseWhenScarce', 'resume']);
});

test('a gateway with hardly any memory says which one it is', (t) => {
  t.mock.getter(memory, 'scarce', () => true);
  const refusal = stages()
    .at(-1)
    ?.enter(...([] as unknown as Parameters<Stage['enter']>));
  assert.match((refusal as DialError).message, /^gateway g1: too little memory: /);
});

test('an attach of a caller takes turns, is counted, and is judged as a dial', async () => {
  const passed: string[] = [];
  const waits: (() => void)[] = [];
  const limiter = new DialLimiter(() => ({ ...DEFAULT_LIMITS, pendingDials: 40 }));
  const attach: Attach = ({ destination: { host } }) => {
    passed.push(host);
    return new Promise((_, reject) => waits.push(() => reject(new Error('over'))));
  };
  const forbidden = new DialError('destination_ip_prohibited', 'acme.yaml: dial.deny[0] forbids secret:1');
  const asked = gatewayAttach({
    limiter,
    tenancy: { permits: ({ destination: { host } }) => (host === 'secret' ? forbidden : undefined) },
    attach,
  });
  const to = (host: string): Promise<Attached> =>
    asked({ tenant: 'acme', destination: { host, port: 1 } } as AttachRequest);
  await assert.rejects(to('secret'), (error: DialError) => {
    assert.deepEqual([error.code, error.message], [forbidden.code, forbidden.message]);
    return error.cause instanceof AttachRefused && error.cause.final;
  });
  const attaches = Array.from({ length: 40 }, () => assert.rejects(to('node'), /over/));
  await assert.rejects(to('node'), { code: 'connection_limit_reached', limit: 'pendingDials' });
  assert.ok(passed.length < 40, 'the rest waits for its turn');
  while (passed.length < 40) await new Promise(setImmediate);
  for (const end of waits) end();
  await Promise.all(attaches);
  assert.equal(limiter.use('acme')?.pendingDials, 0);
});
