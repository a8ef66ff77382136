import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { callerName, type Dial, DialError, type DialRequest, type Principal } from '@isthmus/tunnel';
import { TRANSPORT } from '../defaults.ts';
import { Allowances, Control, type ControlMessage, encodeControl, type PolicyRules, readMessage } from './control.ts';
import type { LinkServerOptions } from './server.ts';
import { link, request } from './testing.ts';

/** What becomes of these lines from the other side. */
async function hear(...lines: (string | Buffer)[]) {
  const stream = new PassThrough();
  const heard: ControlMessage[] = [];
  const refused: string[] = [];
  const failed: string[] = [];
  new Control(stream, {
    lineBytes: TRANSPORT.controlLineBytes,
    receive: (message) => heard.push(message),
    refused: ({ message }) => refused.push(message),
    fault: assert.ifError,
    fail: ({ message }) => failed.push(message),
  });
  for (const line of lines) stream.write(line);
  stream.end();
  await once(stream, 'end');
  return { heard, refused, failed };
}

test('messages that another version writes otherwise are passed over, and the link goes on', async () => {
  const lines = [
    '{"type":"membership","hubs":"all"}',
    '{"type":"membership-change","current":true}',
    '{"type":"policy","deny":"all"}',
    '{"type":"hung-up","gateway":"all"}',
    '{"type":"hung-up","gateway":["0123456789abcdef"]}',
  ];
  const { heard, refused, failed } = await hear(...lines.map((line) => `${line}\n`), '{"type":"drain"}\n');
  assert.deepEqual(heard, [{ type: 'drain' }]);
  assert.deepEqual(
    refused,
    lines.map((line) => `bad control message ${JSON.stringify(line)}`),
  );
  assert.deepEqual(failed, []);
});

test('a token that cannot be read is not told', async () => {
  const { heard, refused } = await hear(
    `{"type":"credential","token":["s3cret"]}\n`,
    '{"type":"credential","token":""}\n',
  );
  assert.deepEqual([heard, refused], [[], Array(2).fill('bad control message "credential"')]);
  const token = 'x'.repeat(16 * 1024);
  assert.deepEqual((await hear(`{"type":"credential","token":"${token}"}\n`)).heard, [{ type: 'credential', token }]);
  assert.deepEqual((await hear(`{"type":"credential","token":"${token}x"}\n`)).heard, []);
});

test('what is no message, or outgrows one, ends the link', async () => {
  for (const line of ['nonsense\n', '7\n', 'null\n', '{"dial":"x"}\n', 'x'.repeat(256 * 1024 + 1)]) {
    const { heard, refused, failed } = await hear(line);
    assert.deepEqual([heard, refused, failed.length], [[], [], 1], line.slice(0, 20));
  }
});

test('a message is the same wherever it is cut, also amid a letter', async () => {
  const hub = { hubId: 'h', address: '', zone: 'zürich', draining: false, generation: 0 };
  const text = `{"type":"membership","current":true,"hubs":[${JSON.stringify(hub)}]}\n{"type":"drain"}\n`;
  const wanted = [{ type: 'membership', current: true, hubs: [hub] }, { type: 'drain' }];
  const bytes = Buffer.from(text);
  for (let at = 1; at < bytes.length; at++) {
    const { heard } = await hear(bytes.subarray(0, at), bytes.subarray(at));
    assert.deepEqual(heard, wanted, `cut at ${at}`);
  }
});

test('nothing is heard behind what ends the link', async () => {
  const { heard, failed } = await hear('nonsense\n{"type":"drain"}\n');
  assert.deepEqual([heard, failed.length], [[], 1]);
});

test("a tenant that says too much on all its links is read slowly, and nothing is lost; another tenant's is read at once", (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  const allowances = new Allowances();
  const drain = encodeControl({ type: 'drain' });
  const say = (tenant: string, messages: number) => {
    const stream = new PassThrough();
    let heard = 0;
    const allowance = allowances.of(tenant);
    const receive = () => void heard++;
    const lineBytes = TRANSPORT.controlLineBytes;
    new Control(stream, {
      lineBytes,
      allowance,
      receive,
      refused: assert.ifError,
      fault: assert.ifError,
      fail: assert.ifError,
    });
    stream.write(drain.repeat(messages));
    return { heard: () => heard };
  };
  const since = performance.now();
  const most = () => {
    const { senderMessagesAtOnce, senderMessagesPerSecond } = TRANSPORT;
    return senderMessagesAtOnce + (senderMessagesPerSecond * (performance.now() - since)) / 1000;
  };
  const links = Array.from({ length: 40 }, () => say('loud', 500));
  const heard = () => links.reduce((sum, link) => sum + link.heard(), 0);
  // Each link may say one thing when it comes.
  assert.ok(heard() >= 2000 && heard() <= most() + links.length, `${heard()} of 20,000 at once`);
  assert.equal(say('quiet', 500).heard(), 500);
  for (let rests = 0; heard() < 40 * 500; rests++) {
    assert.ok(rests < 500, `${heard()} after ${rests} rests`);
    assert.ok(heard() <= most() + (rests + 1) * links.length, `${heard()} after ${rests} rests`);
    context.mock.timers.tick(TRANSPORT.controlRestMs);
  }
});

test('a flood of messages ends the link once its allowance is used up, long messages sooner', async () => {
  for (const [hubs, most] of [
    [0, 1_000],
    [100, 250],
  ] as const) {
    const since = performance.now();
    const hub = { hubId: 'h', address: 'h:1', zone: '', draining: false, generation: 0 };
    const message = { type: 'membership', current: true, hubs: Array.from({ length: hubs }, () => hub) };
    const { heard, failed } = await hear(`${JSON.stringify(message)}\n`.repeat(3_000));
    assert.match(String(failed), /^more control messages than 1000 at once/);
    assert.ok(heard.length <= most + (performance.now() - since) / 10, `${heard.length}`);
    assert.ok(heard.length > most / 2, `${heard.length}`);
  }
});

const HUB = { hubId: 'h1', address: '127.0.0.1:8091', zone: 'a', draining: false, generation: 7 };

test('a list and a change are read, and what they carry beside is left out', () => {
  const list = { type: 'membership', current: true, hubs: [{ ...HUB, more: 'x'.repeat(1000) }], more: 1 };
  assert.deepEqual(readMessage(list), { type: 'membership', current: true, hubs: [HUB] });
  const change = { type: 'membership-change', current: false, changed: [HUB], gone: ['h2'] };
  assert.deepEqual(readMessage(change), change);
  const beat = { type: 'membership-change', current: true, changed: [], gone: [] };
  assert.deepEqual(readMessage(beat), beat);
});

test('addresses are empty, or a host and a port', () => {
  for (const address of ['', 'hub-1.hubs.svc:8091', '[::1]:8091', '10.0.0.1:1']) {
    assert.ok(readMessage({ type: 'membership', current: true, hubs: [{ ...HUB, address }] }), address);
  }
  for (const address of ['hub', 'hub:0', 'hub:65536', 'http://hub:80', 'a b:80', 'user@hub:80', 'hub:80/path', 5]) {
    const read = readMessage({ type: 'membership', current: true, hubs: [{ ...HUB, address }] });
    assert.equal(read, undefined, String(address));
  }
});

const MANY_HUBS = Array.from({ length: TRANSPORT.hubsInMessage + 1 }, (_, index) => ({ ...HUB, hubId: `h${index}` }));

const BAD: readonly [name: string, message: Parameters<typeof readMessage>[0]][] = [
  ['no list', { type: 'membership', current: true }],
  ['a list that is a little current', { type: 'membership', current: 1, hubs: [] }],
  ['no list of what is gone', { type: 'membership-change', current: true, changed: [] }],
  ['a hub that is none', { type: 'membership', current: true, hubs: [null] }],
  ['too many hubs', { type: 'membership', current: true, hubs: MANY_HUBS }],
  ['too many that are gone', { type: 'membership-change', current: true, changed: [], gone: MANY_HUBS.map(() => 'x') }],
  ['a gone hub without an id', { type: 'membership-change', current: true, changed: [], gone: [''] }],
  ['a hub without an id', { type: 'membership', current: true, hubs: [{ ...HUB, hubId: '' }] }],
  ['a hub of a long id', { type: 'membership', current: true, hubs: [{ ...HUB, hubId: 'h'.repeat(300) }] }],
  ['a hub of a long zone', { type: 'membership', current: true, hubs: [{ ...HUB, zone: 'z'.repeat(300) }] }],
  ['a hub that drains a little', { type: 'membership', current: true, hubs: [{ ...HUB, draining: 1 }] }],
  ['a hub of no generation', { type: 'membership', current: true, hubs: [{ ...HUB, generation: null }] }],
  ['a hub of generation 1e300', { type: 'membership', current: true, hubs: [{ ...HUB, generation: 1e300 }] }],
];

for (const [name, message] of BAD) {
  test(`${name} is no membership`, () => assert.equal(readMessage(message), undefined));
}

const RULES: PolicyRules = {
  deny: [{ name: 'no-ssh', ports: [22], callers: ['kube-apiserver', 'operatör'] }, { cidr: '10.0.0.10' }],
  allow: [{ host: '*.acme.example' }],
};

test('rules are read, and what a later version adds is left out', () => {
  const [first, ...others] = RULES.deny ?? [];
  const deny = [{ ...first, weekdays: ['monday'] }, ...others];
  assert.deepEqual(readMessage({ type: 'policy', ...RULES, deny, since: 7 }), { type: 'policy', ...RULES });
  assert.deepEqual(readMessage({ type: 'policy' }), { type: 'policy' });
  assert.deepEqual(readMessage({ type: 'policy', allow: [] }), { type: 'policy', allow: [] });
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
    assert.equal(readMessage({ type: 'policy', deny }), undefined);
    assert.equal(readMessage({ type: 'policy', allow: deny }), undefined);
  });
}

const CUT = {
  ...{
    type: 'cut',
    dial: '00000000000000a1',
    by: 'path',
    reason: 'no way to the agent',
    destination: '10.0.0.5:10250',
  },
  ...{ agent: 'agent-7', gateway: 'g1', hold: 'n1', trace: '', ms: 61_000, agoMs: 3, up: 1, down: 2 },
};

test('a cut at isthmus hold is read, and what a later version adds is left out', () => {
  assert.deepEqual(readMessage({ ...CUT, tenant: 'another', caller: 'somebody' }), CUT);
});

for (const [what, wrong] of Object.entries({
  'a dial that is no id': { dial: 'x' },
  'a cause that nobody knows': { by: 'fate' },
  'an endless reason': { reason: 'x'.repeat(301) },
  'a reason that cannot be shown': { reason: 'a\nb' },
  'a destination that is none': { destination: 'nowhere' },
  'an agent with line ends': { agent: 'a\nb' },
  'a negative age': { agoMs: -1 },
  'bytes as text': { up: '1' },
  'no trace at all': { trace: undefined },
  'one that nobody told': { hold: '' },
}))
  test(`${what} is no cut`, () => assert.equal(readMessage({ ...CUT, ...wrong }), undefined));

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
  const changed = Promise.withResolvers<void>();
  const { client } = await served({
    receive: (message) => got.push(message as PolicyRules) === 2 && changed.resolve(),
  });
  client.send({ type: 'policy', ...RULES });
  client.send({ type: 'policy' });
  await changed.promise;
  assert.deepEqual(got, [{ type: 'policy', ...RULES }, { type: 'policy' }]);
});

test('the most rules that a file may have reach the agent in one message, and more end the link', async () => {
  const got = Promise.withResolvers<PolicyRules>();
  const { client } = await served({ receive: (message) => got.resolve(message as PolicyRules) });
  // 128 KiB as JSON: MAX_DIAL_RULES of libs/admission.
  const rule = (letters: number) => ({ host: 'x.example', callers: ['c'.repeat(200), 'd'.repeat(letters)] });
  const deny = Array.from({ length: 512 }, () => rule(10));
  client.send({ type: 'policy', deny });
  assert.deepEqual((await got.promise).deny, deny);
  client.send({ type: 'policy', deny: Array.from({ length: 1000 }, () => rule(200)) });
  // A hub of another version may allow more. Its agent would have no rules to judge by, so it serves no dials.
  await client.closed;
  await assert.rejects(client.dial(request(1)), { code: 'connection_terminated' });
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

test('who the client of an API server is says nobody but a hub to the gateway that connects for it', async () => {
  const seen: DialRequest[] = [];
  const dial: Dial = async (request) => {
    seen.push(request);
    throw new DialError('connection_refused', 'served');
  };
  const caller = {
    via: 'api-server',
    identity: 'acme/agent/edge-1',
    remote: '10.0.0.9:1',
    local: '10.0.0.1:2',
  } as const;
  for (const role of ['agent', 'hub', 'api-server'] as const) {
    const { client } = await link(dial, {}, { role });
    await assert.rejects(client.dial({ ...request(1), caller }), { message: 'served' });
  }
  assert.deepEqual(
    seen.map((each) => each.caller),
    [undefined, undefined, caller],
  );
});

test("an operator's trial is one to the next part, and no other dial is", async () => {
  const seen: DialRequest[] = [];
  const { client } = await served({}, async (dial) => {
    seen.push(dial);
    throw new DialError('connection_refused', 'served');
  });
  for (const trial of [true, undefined])
    await assert.rejects(client.dial({ ...request(1), trial }), { message: 'served' });
  assert.deepEqual(
    seen.map(({ trial }) => trial),
    [true, undefined],
  );
});

test('a dial whose caller has a name that cannot be shown is none', async () => {
  const { client, refused } = await served({});
  const dial = client.dial({ ...request(1), callerName: 'a\nb' });
  const message = 'not a dial: isthmus-caller with control characters: only what can be printed is taken';
  await assert.rejects(dial, { code: 'http_request_error', message });
  assert.deepEqual(refused, [`agent link, hub h1: ${message}`]);
});
