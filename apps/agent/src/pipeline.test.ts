import assert from 'node:assert/strict';
import { mock, test } from 'node:test';
import { memory } from '@isthmus/runtime';
import { DialError, DialLimiter, type DialRequest } from '@isthmus/tunnel';
import { behind } from '@isthmus/tunnel/testing';
import { AGENT } from './defaults.ts';
import { agentStages, TenantPolicy } from './pipeline.ts';

function stages(rules: boolean): string[] {
  const permit = { name: 'permit', enter: () => undefined };
  const all = agentStages({ agentId: 'a1', limiter: new DialLimiter(), rules: rules ? { permit } : undefined });
  return all.map(({ name }) => name);
}

/** Each stage, and why it comes behind the one before. */
const ORDER = [
  ['limit', 'a dial that is refused must count; what waits for rules below counts as pending, so it is bounded'],
  ['permit', 'dials beyond the limit do not wait for rules'],
  ['refuseWhenScarce', 'descriptors may become scarce while a dial waits for rules'],
] as const;

test('an agent of a tenant passes a dial through all stages, in this order', () => {
  assert.deepEqual(
    stages(true),
    ORDER.map(([name]) => name),
  );
});

test('an agent with hardly any memory says which one it is', async (t) => {
  t.mock.getter(memory, 'scarce', () => true);
  const dial = behind(agentStages({ agentId: 'a1', limiter: new DialLimiter(), rules: undefined }), () =>
    assert.fail(),
  );
  await assert.rejects(dial({ ...request }), { message: /^agent a1: too little memory: / });
});

test('a stage that does not apply is not there', () => {
  assert.deepEqual(stages(false), ['limit', 'refuseWhenScarce']);
});

const DENY = { deny: [{ cidr: '10.0.0.0/8' }] };

const request: DialRequest = {
  id: '00000000000000aa',
  tenant: 'acme',
  destination: { host: '10.0.0.1', port: 1 },
  deadline: 1e12,
  signal: new AbortController().signal,
};

/** A link's policy, which rules it refused, and which rule refused each dial that got past it. */
function policyOf({ announced = true } = {}) {
  const dialled: (string | undefined)[] = [];
  const missing = Promise.withResolvers<Error>();
  const refused: string[] = [];
  const policy = new TenantPolicy({
    announced,
    missing: missing.resolve,
    refused: ({ message }) => void refused.push(message),
  });
  const permitted = behind([policy.permit], async ({ destination, policy }) => {
    dialled.push(policy?.verdict(destination, '').rule);
    throw new DialError('connection_refused', 'dialled');
  });
  const dial = () => permitted({ ...request }).catch(({ message }: Error) => message);
  return { policy, dial, dialled, refused, missing: missing.promise };
}

test('dials wait for rules that were announced, and go by each change', async () => {
  const { policy, dial, dialled } = policyOf();
  const waiting = dial();
  // Whatever does not wait has dialled by then.
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(dialled, []);
  policy.take(DENY);
  assert.equal(await waiting, 'dialled');
  policy.take({});
  await dial();
  assert.deepEqual(dialled, ['deny[0]', '']);
});

test('dials to a hub that announces no rules go at once, and by the rules that come later', async () => {
  const { policy, dial, dialled } = policyOf({ announced: false });
  await dial();
  policy.take(DENY);
  await dial();
  assert.deepEqual(dialled, [undefined, 'deny[0]']);
});

test('rules that cannot be used are refused, and change nothing', async () => {
  const { policy, dial, dialled, refused } = policyOf();
  policy.take(DENY);
  policy.take({ deny: [{ cidr: '10.0.0.0/99' }] });
  assert.match(`${refused}`, /0 to 32 bits/);
  await dial();
  assert.deepEqual(dialled, ['deny[0]']);
});

test('a hub that announces rules and sends none that can be used is reported, and no dial goes out', async (context) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  context.after(() => mock.timers.reset());
  const { policy, dial, dialled, refused, missing } = policyOf();
  const waiting = dial();
  policy.take({ allow: [{ host: '10.0.0.1' }] });
  assert.match(`${refused}`, /is an address/);
  mock.timers.tick(AGENT.rulesMs);
  assert.equal((await missing).message, 'it sent no dial rules that can be used within 10 s');
  policy[Symbol.dispose]();
  assert.equal(await waiting, 'the link ended before its dial rules came');
  assert.equal(await dial(), 'the link ended before its dial rules came');
  assert.deepEqual(dialled, []);
});
