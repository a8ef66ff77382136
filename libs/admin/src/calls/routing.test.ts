import assert from 'node:assert/strict';
import process from 'node:process';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { Directory, lookups, route, routed, type SessionRecord, type Strategy } from '@isthmus/directory';
import { adminApi } from '@isthmus/proto/admin';
import {
  type AgentIdentifiers,
  type Dial,
  DialError,
  type Established,
  pipeline,
  planeEvents,
  type TunnelOutcome,
} from '@isthmus/tunnel';
import { endOf } from '@isthmus/tunnel/testing';
import { asking } from '../testing/backend.ts';
import type { RoutingPart } from './explain.ts';
import { Recent } from './recent.ts';
import type { Loss } from './recent-losses.ts';
import type { TenantsPart } from './tenants.ts';

const { STANDING_TAKEN, STANDING_NOT } = adminApi.Candidate_Standing;
const { DIAL_STATE_ESTABLISHED, DIAL_STATE_FAILED } = adminApi.DialState;

interface Given {
  /** The dial of the agent's hub; undefined without a link. */
  readonly dial?: Dial | undefined;
  readonly strategies?: readonly Strategy[];
  readonly sessions?: readonly SessionRecord[];
  readonly quarantined?: string;
  readonly policy?: RoutingPart['policy'];
  readonly losses?: readonly Loss[];
  readonly tenants?: TenantsPart;
  readonly registry?: string;
}

const session: SessionRecord = {
  sessionId: 's1',
  tenant: 'default',
  agentId: 'a1',
  hubId: 'h1',
  incarnation: 1,
  version: 1,
  identifiers: { ipv4: [], ipv6: [], host: [], cidr: ['10.0.0.0/8'], defaultRoute: false },
  draining: false,
  since: 0,
};

/** A destination that sends `says` when it is reached. With `ends` it closes at once. */
function destination({ says, ends = false }: { says?: string; ends?: boolean } = {}): Established {
  const stream = new Duplex({
    read() {},
    write: (_chunk, _encoding, taken) => taken(),
    final(taken) {
      this.push(null);
      taken();
    },
  });
  if (says) stream.push(says);
  if (ends) stream.push(null);
  const end = endOf(stream);
  return { end, agentId: 'a1', sessionId: 's1', hubId: 'h1', timing: { dnsMs: 1, connectMs: 2 } };
}

async function gateway(given: Given = {}) {
  const {
    dial,
    strategies = ['default'],
    sessions = [session],
    quarantined,
    policy,
    losses,
    tenants,
    registry,
  } = given;
  const events = planeEvents();
  const recent = new Recent(events);
  const directory = new Directory({ random: () => 0 });
  const hub = { hubId: 'h1', incarnation: 1, peerAddress: 'h1:1', agentAddress: '', zone: 'b', draining: false };
  const quarantine = { tenant: 'default', agentId: 'a1', version: 1 };
  const quarantines = quarantined === undefined ? [] : [{ ...quarantine, reason: quarantined }];
  directory.reset({ hubs: sessions.length > 0 ? [hub] : [], sessions, quarantines });
  const observation = { events };
  const options = { directory, strategies, zone: 'a', nextHop: () => dial && { dial }, parkTimeout: 0, observation };
  const outcomes: TunnelOutcome[] = [];
  events.on('tunnel:close', (_tunnel, outcome) => outcomes.push(outcome));
  const asked = {
    tenant: 'default',
    zone: 'a',
    dialTimeout: 60_000,
    parkTimeout: 2000,
    events,
    dial: pipeline({ role: 'gateway', open: routed(options), observation }),
    strategies,
    lookups: (tenant: string, host: string) => lookups(options, { tenant, host }),
    route: (tenant: string, host: string) => route({ ...options, suspects: new Set() }, { tenant, host }),
    policy: policy ?? (() => undefined),
    direct: (_tenant: string, { host }: { host: string }) => (host === 'webhook.svc' ? 'dial.hooks' : undefined),
  };
  const plane = {
    registry: { synced: true, up: registry === undefined, detail: registry ?? 'answers' },
    members: async () => [],
    lastMembers: () => [],
    hubs: () => directory.hubs(),
    linkTo: () => 'up' as const,
    rttTo: () => undefined,
    failureOf: () => undefined,
  };
  const client = await asking({
    recent: Object.assign(recent, losses && { losses: () => losses }),
    routing: asked,
    plane,
    sessions: () => directory.sessions(),
    ...(tenants && { tenants }),
  });
  return { client, admin: client.admin, events, outcomes, [Symbol.asyncDispose]: () => client[Symbol.asyncDispose]() };
}

const reached: Dial = async () => destination();

test('an explanation says that the gateway dials a destination itself, and by which rule', async () => {
  await using plane = await gateway({ dial: reached });
  const { verdict, steps, agentId, advice } = await plane.admin.explain({ destination: 'webhook.svc:443' });
  assert.equal(verdict, 'the gateway dials it itself, without an agent (rule dial.hooks)');
  assert.deepEqual([steps, agentId, advice], [[], '', []]);
});

test('an explanation names the chosen session, its strategy, and the keys that were looked up', async () => {
  await using plane = await gateway({ dial: reached, strategies: ['destHost', 'destCIDR'] });
  const answer = await plane.admin.explain({ destination: '10.1.2.3:443' });
  assert.deepEqual([answer.sessionId, answer.agentId, answer.hubId, answer.advice], ['s1', 'a1', 'h1', []]);
  assert.equal(answer.verdict, 'strategy destCIDR sends a dial to agent a1 on hub h1, through session s1');
  assert.deepEqual(
    answer.steps.map(({ strategy, keys, taken }) => [strategy, keys, taken]),
    [
      ['destHost', [{ key: '10.1.2.3', sessions: 0 }], false],
      ['destCIDR', [{ key: '10.0.0.0/8', sessions: 1 }], true],
    ],
  );
  const [candidate] = answer.steps[1]?.candidates ?? [];
  assert.deepEqual([candidate?.standing, candidate?.zone, candidate?.reachable], [STANDING_TAKEN, 'b', true]);
});

const STUCK: [why: string, given: Given, verdict: RegExp, advice: RegExp][] = [
  [
    'no hub',
    { sessions: [] },
    /waits up to 2 s for a session of tenant default/,
    /^the registry lists no hub: start one/,
  ],
  [
    'no agent of the tenant',
    { sessions: [{ ...session, tenant: 'acme' }] },
    /waits up to 2 s for a session/,
    /^no agent of tenant default has a session \(there are sessions of tenant acme\): start one/,
  ],
  [
    'no agent for the destination',
    { strategies: ['destHost'] },
    /fails with "No agent available" at once: no agent of tenant default serves/,
    /^give an agent --agent-identifiers .*looked up: 10.1.2.3; agents of this tenant: a1/,
  ],
  [
    'no link',
    {},
    /waits up to 2 s for a link to a hub that has a session for it/,
    /^this gateway has no link to hub h1:/,
  ],
  [
    'a quarantine',
    { dial: reached, quarantined: 'loses packets' },
    /fails with "No agent available" at once: all agents .* in quarantine/,
    /^lift the quarantine of agent a1 if it can dial again$/,
  ],
  [
    'an agent that served it and went away',
    {
      strategies: ['destHost'],
      losses: [lossOf('a6', { cidr: ['10.1.0.0/16'] }), lossOf('a7', { cidr: ['10.2.0.0/16'] })],
    },
    /no agent of tenant default serves this destination/,
    /^agent a6 served it, and has no session since \d\d:\d\d:\d\d UTC: .*\ngive an agent --agent-identifiers/,
  ],
  [
    'a registry that takes no writes',
    { strategies: ['destHost'], registry: 'READONLY' },
    /no agent of tenant default serves this destination/,
    /^the registry does not do its work \(READONLY\), so agents that connect now are not found/,
  ],
];

function lossOf(id: string, identifiers: Partial<AgentIdentifiers>): Loss {
  const serves = { ...session.identifiers, cidr: [], ...identifiers };
  const where = { tenant: 'default', hubId: 'h1', remote: '', reason: '' };
  return { role: 'agent', id, ...where, left: false, atMs: Date.now(), identifiers: serves };
}

test('an explanation says that a limit of the tenant refuses every dial, although a session would take it', async () => {
  const use = { tunnels: { used: 20, most: 20 }, pendingDials: { used: 0, most: Number.POSITIVE_INFINITY } };
  const list = () => [{ name: 'default', file: 'default.yaml', use, certificates: [], apiServerNames: [], state: 'a' }];
  await using plane = await gateway({
    dial: reached,
    tenants: { list, has: () => true, problems: () => [], scraped: async () => [], unopened: () => [] },
  });
  const { verdict, advice } = await plane.admin.explain({ destination: '10.1.2.3:443', tenant: 'default' });
  assert.equal(verdict, 'a dial is refused at once: tenant default uses 20 of 20 tunnels at this gateway');
  assert.match(
    advice.join('\n'),
    /^end what leaks .*isthmus kick tunnel\), or raise limits.tunnels in the tenant's file$/,
  );
});

for (const [why, given, verdict, advice] of STUCK) {
  test(`an explanation says what to do if there is ${why}`, async () => {
    await using plane = await gateway(given);
    const answer = await plane.admin.explain({ destination: '10.1.2.3:443' });
    assert.equal(answer.sessionId, '');
    assert.match(answer.verdict, verdict);
    assert.match(answer.advice.join('\n'), advice);
    for (const { candidates } of answer.steps)
      for (const { standing } of candidates) assert.equal(standing, STANDING_NOT);
  });
}

/** Refuses ssh, and whatever is not for an operator. */
const policy: RoutingPart['policy'] = (tenant, { port }, caller) => {
  if (tenant !== 'acme') return undefined;
  if (port === 22) return { allowed: false, rule: 'no-ssh' };
  return caller === 'operator' ? { allowed: true, rule: 'operators' } : { allowed: false, rule: '' };
};

test("an explanation says which rule of the tenant's policy allows or refuses a dial", async () => {
  const sessions = [
    { ...session, tenant: 'acme' },
    { ...session, sessionId: 's2' },
  ];
  await using plane = await gateway({ dial: reached, sessions, policy });
  const ask = (destination: string, caller: string) => plane.admin.explain({ destination, caller, tenant: 'acme' });
  const refused = await ask('10.1.2.3:22', 'operator');
  assert.deepEqual([refused.policy, refused.sessionId, refused.steps], [{ allowed: false, rule: 'no-ssh' }, '', []]);
  assert.equal(refused.verdict, 'a dial fails with 403 at once: the policy of tenant acme refuses it (rule no-ssh)');
  assert.deepEqual(refused.advice, [
    "if callers of tenant acme should reach it, change rule no-ssh in the tenant's file",
  ]);
  const unlisted = await ask('10.1.2.3:443', '');
  assert.deepEqual([unlisted.policy, unlisted.sessionId], [{ allowed: false, rule: '' }, '']);
  assert.match(unlisted.verdict, /the policy of tenant acme refuses it \(no rule allows it\)$/);
  assert.match(unlisted.advice.join(), /add a rule to dial.allow in the tenant's file$/);
  const allowed = await ask('10.1.2.3:443', 'operator');
  assert.deepEqual(
    [allowed.policy, allowed.sessionId, allowed.advice],
    [{ allowed: true, rule: 'operators' }, 's1', []],
  );
  assert.equal((await plane.admin.explain({ destination: '10.1.2.3:22' })).policy, undefined);
});

test('a dial opens a tunnel, waits for the first byte and returns where the time went', async () => {
  await using plane = await gateway({ dial: async () => destination({ says: 'SSH-2.0' }) });
  const answer = await plane.admin.dial({ destination: '10.1.2.3:22', firstByteTimeoutMs: 60_000 });
  assert.equal(answer.dial?.state, DIAL_STATE_ESTABLISHED);
  assert.deepEqual([answer.dial?.caller, answer.dial?.via, answer.dial?.agentId], ['admin', 'admin', 'a1']);
  assert.match(answer.dial?.traceId ?? '', /^[0-9a-f]{32}$/);
  assert.deepEqual(
    answer.phases.map(({ name }) => name),
    ['gateway', 'attempt', 'dns', 'connect', 'first_byte'],
  );
  assert.ok(answer.firstByteMs !== undefined);
  assert.equal(answer.ended, '');
});

test('a dial that waits for no byte closes its tunnel gracefully', async () => {
  await using plane = await gateway({ dial: reached });
  const answer = await plane.admin.dial({ destination: '10.1.2.3:22' });
  assert.deepEqual([answer.dial?.state, answer.firstByteMs], [DIAL_STATE_ESTABLISHED, undefined]);
  while (plane.outcomes.length === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([plane.outcomes[0]?.by, plane.outcomes[0]?.error], ['caller', undefined]);
});

test('a dial waits for a silent destination no longer than asked', async () => {
  await using plane = await gateway({ dial: reached });
  const answer = await plane.admin.dial({ destination: '10.1.2.3:22', firstByteTimeoutMs: 20 });
  assert.deepEqual([answer.firstByteMs, answer.ended], [undefined, '']);
});

test('dials that wait at once for a first byte warn of no leak', async (context) => {
  const warned = context.mock.method(process, 'emitWarning', () => {});
  await using plane = await gateway({ dial: reached });
  const ask = { destination: '10.1.2.3:22', firstByteTimeoutMs: 20 };
  await Promise.all(Array.from({ length: 20 }, () => plane.admin.dial(ask)));
  assert.deepEqual(
    warned.mock.calls.map(({ arguments: [warning] }) => String(warning)),
    [],
  );
});

test('a dial reports a destination that closes before its first byte', async () => {
  await using plane = await gateway({ dial: async () => destination({ ends: true }) });
  const answer = await plane.admin.dial({ destination: '10.1.2.3:22', firstByteTimeoutMs: 60_000 });
  assert.deepEqual([answer.firstByteMs, answer.ended], [undefined, 'closed by the destination']);
});

test('a failed dial is an answer, with code, text and attempts', async () => {
  const refused = new DialError('connection_refused', 'dial tcp 10.1.2.3:22: connect: connection refused');
  await using plane = await gateway({ dial: () => Promise.reject(refused) });
  const { dial, phases, firstByteMs } = await plane.admin.dial({
    destination: '10.1.2.3:22',
    firstByteTimeoutMs: 1000,
  });
  assert.equal(dial?.state, DIAL_STATE_FAILED);
  assert.deepEqual([dial?.error?.code, dial?.error?.reason], ['connection_refused', 'error_response']);
  assert.match(dial?.error?.text ?? '', /connection refused/);
  assert.deepEqual([dial?.attempts.length, phases.length, firstByteMs], [1, 2, undefined]);
});

test('an invalid request is rejected with what to do', async () => {
  await using plane = await gateway();
  const { admin } = plane;
  await assert.rejects(admin.explain({ destination: 'x' }), /INVALID_ARGUMENT: bad destination "x": want host:port/);
  await assert.rejects(admin.dial({ destination: '' }), /INVALID_ARGUMENT: bad destination/);
  const long = { destination: 'x:1', timeoutMs: 60_001 };
  await assert.rejects(admin.dial(long), /INVALID_ARGUMENT: timeout_ms is 60001: want 0 to 60000/);
  await using hub = await asking();
  const elsewhere = /UNIMPLEMENTED: this program routes no dials: ask a gateway of the plane/;
  await assert.rejects(hub.admin.explain({ destination: 'x:1' }), elsewhere);
  await assert.rejects(hub.admin.dial({ destination: 'x:1' }), elsewhere);
});
