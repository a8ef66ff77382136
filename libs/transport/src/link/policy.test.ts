import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { deferred } from '@isthmus/runtime';
import { callerName, type Dial, DialError, type DialRequest, type Principal } from '@isthmus/tunnel';
import { type PolicyRules, readPolicy } from './policy.ts';
import type { LinkServerOptions } from './server.ts';
import { link, request } from './testing.ts';

const RULES: PolicyRules = {
  deny: [{ name: 'no-ssh', ports: [22], callers: ['kube-apiserver', 'operatör'] }, { cidr: '10.0.0.10' }],
  allow: [{ host: '*.acme.example' }],
};

test('rules are read, and what a later version adds is left out', () => {
  const [first, ...others] = RULES.deny ?? [];
  const deny = [{ ...first, weekdays: ['monday'] }, ...others];
  assert.deepEqual(readPolicy({ type: 'policy', ...RULES, deny, since: 7 }), { type: 'policy', ...RULES });
  assert.deepEqual(readPolicy({ type: 'policy' }), { type: 'policy' });
  assert.deepEqual(readPolicy({ type: 'policy', allow: [] }), { type: 'policy', allow: [] });
});

const MANY = Array.from({ length: 1001 }, () => ({ cidr: '10.0.0.0/8' }));

for (const [what, deny] of [
  ['no list', { cidr: '10.0.0.0/8' }],
  ['null', null],
  ['more rules than a file may have', MANY],
  ['a rule that is none', ['10.0.0.0/8']],
  ['a rule for all destinations, as an unknown condition alone would be', [{ name: 'x', callers: ['c'], weekday: 1 }]],
  ['a rule for a prefix and a host', [{ cidr: '10.0.0.0/8', host: 'x' }]],
  ['a prefix that is no text', [{ cidr: 10 }]],
  ['a name with line ends', [{ name: 'a\nb', cidr: '10.0.0.0/8' }]],
  ['an endless name', [{ name: 'x'.repeat(300), cidr: '10.0.0.0/8' }]],
  ['a port that is none', [{ ports: [0] }]],
  ['a port as text', [{ ports: ['22'] }]],
  ['a caller that is none', [{ ports: [22], callers: [null] }]],
] as const) {
  test(`${what} is no policy`, () => {
    assert.equal(readPolicy({ type: 'policy', deny }), undefined);
    assert.equal(readPolicy({ type: 'policy', allow: deny }), undefined);
  });
}

const answers: Dial = async () => {
  throw new DialError('connection_refused', 'served');
};

/** A link whose agent end is given, and what that end refused. */
async function served(serving: Partial<LinkServerOptions>, dial = answers) {
  const { client, events } = await link(dial, {}, serving);
  const refused: string[] = [];
  events.on('refused', (where, peer, { message }) => refused.push(`${where}, ${peer}: ${message}`));
  return { client, events, refused };
}

test("an agent gets its tenant's rules, and each change", async () => {
  const got: PolicyRules[] = [];
  const changed = deferred<void>();
  const { client } = await served({ policy: (rules) => got.push(rules) === 2 && changed.resolve() });
  client.sendPolicy(RULES);
  client.sendPolicy({});
  await changed.promise;
  assert.deepEqual(got, [{ type: 'policy', ...RULES }, { type: 'policy' }]);
});

test('the most rules that a file may have reach the agent in one message, and more end the link', async () => {
  const got = deferred<PolicyRules>();
  const { client } = await served({ policy: got.resolve });
  // 128 KiB as JSON: MAX_DIAL_RULES of libs/admission.
  const rule = (letters: number) => ({ host: 'x.example', callers: ['c'.repeat(200), 'd'.repeat(letters)] });
  const deny = Array.from({ length: 512 }, () => rule(10));
  client.sendPolicy({ deny });
  assert.deepEqual((await got.promise).deny, deny);
  client.sendPolicy({ deny: Array.from({ length: 1000 }, () => rule(200)) });
  // A hub of another version may allow more. Its agent would have no rules to judge by, so it serves no dials.
  await client.closed;
  await assert.rejects(client.dial(request(1)), { code: 'connection_terminated' });
});

test('rules that cannot be used are refused and counted, and the link goes on', async () => {
  const policy = () => {
    throw new Error('"10.0.0.0/99" is no prefix');
  };
  const { client, events, refused } = await served({ policy });
  const told = once(events, 'refused');
  client.sendPolicy({ deny: [{ cidr: '10.0.0.0/99' }] });
  await told;
  assert.deepEqual(refused, ['agent link, hub h1: "10.0.0.0/99" is no prefix']);
  await assert.rejects(client.dial(request(1)), { message: 'served' });
});

test("a dial of another tenant than the link's is refused for good, and counted", async () => {
  const { client, refused } = await served({ tenant: 'acme' });
  const dial = (tenant: string) => client.dial({ ...request(1), tenant });
  const message = 'hub h1 dials for tenant default, and this link is of tenant acme';
  await assert.rejects(dial('default'), { code: 'http_request_denied', retryable: false, message });
  assert.deepEqual(refused, [`agent link, hub h1: ${message}`]);
  await assert.rejects(dial('acme'), { message: 'served' });
  assert.equal(refused.length, 1);
});

test("the caller's name goes with its dial, whatever its letters, and on to the next link", async () => {
  const seen: DialRequest[] = [];
  const { client } = await served({}, async (dial) => {
    seen.push(dial);
    throw new DialError('connection_refused', 'served');
  });
  const principal: Principal = { tenant: 'default', role: 'caller', name: 'küb apiserver', rule: 'x.yaml: callers[0]' };
  const caller = { via: 'grpc', identity: 'CN=x', principal } as const;
  for (const from of [
    {},
    { caller },
    { callerName: 'küb apiserver' },
    { caller: { via: 'grpc', identity: 'uds' } },
  ] as const)
    await assert.rejects(client.dial({ ...request(1), ...from }), { message: 'served' });
  assert.deepEqual(seen.map(callerName), ['', 'küb apiserver', 'küb apiserver', '']);
});

test('a dial whose caller has a name that cannot be shown is none', async () => {
  const { client, refused } = await served({});
  const dial = client.dial({ ...request(1), callerName: 'a\nb' });
  const message = 'not a dial: isthmus-caller with control characters: only what can be printed is taken';
  await assert.rejects(dial, { code: 'http_request_error', message });
  assert.deepEqual(refused, [`agent link, hub h1: ${message}`]);
});
