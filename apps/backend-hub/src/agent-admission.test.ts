import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import net, { type Socket } from 'node:net';
import { type TestContext, test } from 'node:test';
import { type AgentEvidence, type Grant, readTenantFile, type Tenant, Tenants } from '@isthmus/admission';
import { Directory, memoryRegistry } from '@isthmus/directory';
import type { Tenancy } from '@isthmus/plane';
import { memory } from '@isthmus/runtime';
import { until } from '@isthmus/runtime/testing';
import { LinkServer, parseIdentifiers, refusedWhere, requestLink } from '@isthmus/transport';
import { NotAuthorised, planeEvents } from '@isthmus/tunnel';
import { AgentAdmission, RenewalRates, SessionGrant } from './agent-admission.ts';
import { hub } from './hub.ts';
import type { SessionTable } from './sessions.ts';

function connection() {
  const socket = Object.assign(new EventEmitter(), {
    destroyed: false,
    remoteAddress: '10.0.0.1',
    destroy: () => {
      socket.destroyed = true;
    },
  });
  return socket;
}

/** An admission whose agents are judged so. @returns how an agent asks it */
function admission(agent: () => Promise<never>) {
  const tenancy = { identify: { agent } } as unknown as Tenancy;
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 10 };
  const admits = new AgentAdmission({ tenancy, limits }, {} as SessionTable, () => undefined);
  return (socket: ReturnType<typeof connection>) =>
    admits.link({ agentId: 'a', identifiers: '', token: 'junk', version: 'test' }, socket as unknown as Socket);
}

const TOO_MANY = /^NotAuthorised: 4 attempts on its connection were refused or are not decided yet: connect again$/;

test('a connection that is refused again and again costs a few verifications, and ends', async () => {
  let judged = 0;
  const ask = admission(() => {
    judged++;
    return Promise.reject(new NotAuthorised('nobody knows it'));
  });
  const [patient, other] = [connection(), connection()];
  for (let i = 0; i < 4; i++) await assert.rejects(ask(patient), /nobody knows it/);
  assert.equal(patient.destroyed, false);
  await assert.rejects(ask(patient), TOO_MANY);
  assert.deepEqual([judged, patient.destroyed], [4, true]);
  await assert.rejects(ask(other), /nobody knows it/);
  assert.deepEqual([judged, other.destroyed], [5, false]);
});

test('an agent whose credential is good gives its slot back before it is refused, and another one does not', async () => {
  const proved: Socket[] = [];
  const port = { unproven: { proved: (socket: Socket) => void proved.push(socket) } };
  const admit = () => {
    throw new NotAuthorised('not with this id', { principal: PRINCIPAL });
  };
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 0 };
  const hello = { agentId: 'a', identifiers: '', token: 'good', version: 'test' };
  const [good, bad, third, fourth] = Array.from({ length: 4 }, () => connection() as unknown as Socket);
  const agent = ({ source }: AgentEvidence) =>
    source === '10.0.0.1' ? Promise.resolve({} as Grant) : Promise.reject(new NotAuthorised('nobody knows it'));
  Object.assign(bad as Socket, { remoteAddress: '10.0.0.2' });
  const tenancy = { identify: { agent }, admit } as unknown as Tenancy;
  const ofTenants = new AgentAdmission({ tenancy, limits }, {} as SessionTable, () => port);
  await assert.rejects(ofTenants.link(hello, good as Socket), /not with this id/);
  await assert.rejects(ofTenants.link(hello, bad as Socket), /nobody knows it/);
  let sessions = -1;
  const table = { ofAgent: () => sessions } as unknown as SessionTable;
  const authenticate = async () => {
    sessions = 0;
  };
  const ofOne = new AgentAdmission({ authenticate, limits }, table, () => port);
  await assert.rejects(ofOne.link(hello, third as Socket), /--max-agent-sessions/);
  await ofOne.apiServerLink(hello, fourth as Socket);
  const nobody = new AgentAdmission(
    { authenticate: () => Promise.reject(new Error('bad')), limits },
    table,
    () => port,
  );
  await assert.rejects(nobody.apiServerLink(hello, bad as Socket), /token was not accepted/);
  assert.deepEqual(proved, [good, third, fourth]);
});

test('attempts that nobody has refused yet count too, and are not called refused', async () => {
  const verdict = Promise.withResolvers<never>();
  const ask = admission(() => verdict.promise);
  const hasty = connection();
  const undecided = [1, 2, 3, 4].map(() => ask(hasty));
  await assert.rejects(ask(hasty), TOO_MANY);
  assert.equal(hasty.destroyed, true);
  verdict.reject(new NotAuthorised('nobody knows it'));
  await Promise.all(undecided.map((attempt) => assert.rejects(attempt, /nobody knows it/)));
});

test('an agent without room is refused before its token is looked at, and after that if others took the room meanwhile', async () => {
  let [sessions, reviews] = [1, 0];
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 1 };
  const authenticate = async () => {
    reviews++;
    sessions = 1;
  };
  const table = { ofAgent: () => sessions } as unknown as SessionTable;
  const admits = new AgentAdmission({ authenticate, limits }, table, () => undefined);
  const socket = connection() as unknown as Socket;
  const asked = { agentId: 'a', token: 'junk', ...parseIdentifiers('') };
  const link = () => admits.link({ ...asked, identifiers: '', version: 'test' }, socket);
  const packets = () =>
    admits.packets.admit({
      ...asked,
      peer: { socket, remote: '10.0.0.1:1', subject: undefined, end() {} },
      signal: AbortSignal.timeout(60_000),
      authenticate: (check) => check('junk', { source: '10.0.0.1', signal: AbortSignal.timeout(60_000) }),
    });
  for (const asks of [link, packets]) {
    [sessions, reviews] = [1, 0];
    await assert.rejects(asks(), /agent a has 1 sessions here already: --max-agent-sessions/);
    assert.equal(reviews, 0);
    sessions = 0;
    await assert.rejects(asks(), /agent a has 1 sessions here already: --max-agent-sessions/);
    assert.equal(reviews, 1);
  }
});

test('a hub with hardly any memory takes no further agent, and looks at no token', async (t) => {
  const scarce = t.mock.getter(memory, 'scarce', () => true);
  const limits = { identifiers: 10, identifierBytes: 1000, sessions: 1 };
  const authenticate = () => assert.fail('it was asked');
  const admits = new AgentAdmission({ authenticate, limits }, {} as SessionTable, () => undefined);
  const socket = connection() as unknown as Socket;
  const hello = { agentId: 'a', identifiers: '', token: 'junk', version: 'test' };
  const { signal } = new AbortController();
  const peer = { socket, remote: '10.0.0.1:1', subject: undefined, end() {} };
  const packets = { ...hello, ...parseIdentifiers(''), peer, signal, authenticate };
  for (const asks of [
    () => admits.link(hello, socket),
    () => admits.apiServerLink(hello, socket),
    () => admits.packets.admit(packets),
  ])
    await assert.rejects(asks, (error: Error) => refusedWhere(error, '') === 'memory' && /memory/.test(error.message));
  scarce.mock.restore();
});

const PRINCIPAL = {
  tenant: 'acme',
  role: 'agent',
  name: 'edge',
  rule: 'acme.yaml: agents[0].tokens',
  shared: true,
} as const;

/** A grant that a test ends, and how many watch it. */
function granted() {
  const watching = new Set<(reason: NotAuthorised) => void>();
  const watch: Grant['watch'] = (ended) => {
    watching.add(ended);
    return () => void watching.delete(ended);
  };
  const end = (why: string) => {
    for (const ended of [...watching]) ended(new NotAuthorised(why));
  };
  return { grant: { watch, principal: PRINCIPAL } as unknown as Grant, end, watching };
}

/** A session whose fresh tokens are verified by `renew`, and what it reports. */
function standing(renew?: (token: string) => Promise<Grant>) {
  const said: string[] = [];
  const first = granted();
  const of: unknown[] = [];
  const report = (what: string) => (error: Error) => {
    said.push(`${what}: ${error.message}`);
    of.push((error as NotAuthorised).principal);
  };
  const session = new SessionGrant({
    grant: first.grant,
    renew,
    ended: report('ended'),
    refused: report('refused'),
  });
  return { session, first, said, of, taken: () => void said.push('taken') };
}

test('a session stands on its newest grant alone', async () => {
  const next = granted();
  const { session, first, said, taken } = standing(async () => next.grant);
  await session.renew('fresh', taken);
  assert.deepEqual([first.watching.size, next.watching.size], [0, 1]);
  first.end('it expired');
  next.end('its key was removed');
  assert.deepEqual(said, ['taken', 'ended: its key was removed']);
});

test('a fresh token that is refused leaves the session as it is', async () => {
  const { session, first, said, of, taken } = standing(() => Promise.reject(new NotAuthorised('its signature is bad')));
  await session.renew('fresh', taken);
  await session.renew('another', taken);
  assert.equal(first.watching.size, 1);
  assert.deepEqual(of, [PRINCIPAL, PRINCIPAL], 'the session is not a stranger’s');
  first.end('it expired');
  const fast = 'refused: fresh tokens come too fast';
  assert.deepEqual(said, ['refused: its signature is bad', fast, 'ended: it expired']);
});

test('tokens that come too fast, or to a session without one, are not verified', async () => {
  const answer = Promise.withResolvers<Grant>();
  const { session, said, taken } = standing(() => answer.promise);
  const first = session.renew('one', taken);
  await session.renew('two', taken);
  answer.resolve(granted().grant);
  await first;
  await session.renew('three', taken);
  const none = standing();
  await none.session.renew('any', none.taken);
  const fast = 'refused: fresh tokens come too fast';
  assert.deepEqual(
    [...said, ...none.said],
    [fast, 'taken', fast, 'refused: the session stands on no token that could be renewed'],
  );
});

test('nothing is watched once the session has ended, also if its token is verified later', async () => {
  const [answer, next] = [Promise.withResolvers<Grant>(), granted()];
  const { session, first, said, taken } = standing(() => answer.promise);
  const renewed = session.renew('fresh', taken);
  session[Symbol.dispose]();
  answer.resolve(next.grant);
  await renewed;
  assert.deepEqual([first.watching.size, next.watching.size, said], [0, 0, []]);
});

function tenantsOf(texts: Readonly<Record<string, string>>): Tenants {
  const tenants = new Tenants();
  const sources = Object.entries(texts).map(([path, text]) => {
    return [path, { read: readTenantFile(text), credentials: new Map() }] as const;
  });
  tenants.update(new Map(sources));
  return tenants;
}

function grantOf(tenant: Tenant): Grant {
  const { name } = tenant;
  const principal = { tenant: name, role: 'agent', name: 'sa', rule: `${tenant.path}: agents[0].tokens`, shared: true };
  return { tenant, principal, watch: () => () => {} } as Grant;
}

test('each tenant may renew so many sessions a second, as its file has it now', () => {
  const tenants = tenantsOf({ 'a.yaml': 'tenant: a\nlimits: {renewalsPerSecond: 2}', 'b.yaml': 'tenant: b' });
  const [a, b] = ['a', 'b'].map((name) => grantOf(tenants.get(name) as Tenant)) as [Grant, Grant];
  let now = 0;
  const rates = new RenewalRates(() => now);
  const refusal = (grant: Grant) => {
    try {
      rates.take(grant);
      return undefined;
    } catch (error) {
      return error as NotAuthorised;
    }
  };
  assert.deepEqual([refusal(a), refusal(a)], [undefined, undefined]);
  const refused = refusal(a);
  assert.ok(refused instanceof NotAuthorised);
  assert.deepEqual(
    [refused.rule, refused.principal?.tenant, refusedWhere(refused, 'agents')],
    ['a.yaml: limits.renewalsPerSecond', 'a', 'limits.renewalsPerSecond'],
  );
  for (let i = 0; i < 200; i++) assert.equal(refusal(b), undefined, 'another tenant has its own, and a default');
  assert.ok(refusal(b));
  now = 500;
  assert.deepEqual([refusal(a), refusal(a) instanceof NotAuthorised], [undefined, true]);
  now = 1000;
  assert.deepEqual(
    ['a', 'b', 'c'].map((tenant) => rates.last(tenant)),
    [3, 200, 0],
    'those that were refused do not count',
  );
});

/** A hub whose agents' tokens are `TENANT ...`. */
async function tokenHub(context: TestContext, texts: Readonly<Record<string, string>>) {
  const tenants = tenantsOf(texts);
  const verified: string[] = [];
  const agent = async ({ token = '' }: AgentEvidence) => {
    verified.push(token);
    return grantOf(tenants.get(token.split(' ')[0] as string) as Tenant);
  };
  const tenancy = {
    tenants,
    identify: { agent },
    admit() {},
    foundOfApiServers() {},
    changed: () => () => {},
  } as unknown as Tenancy;
  const events = planeEvents();
  const refused: string[] = [];
  events.on('refused', (where, _remote, error) => void refused.push(`${where}: ${error.message}`));
  const running = await hub({
    ...{ hubId: 'h1', zone: '', plane: 'p', keepaliveTime: 60_000, tenancy, changed() {} },
    ...{ advertiseAddress: '', advertiseAgentAddress: '10.0.0.1:8091', observation: { events } },
    registry: memoryRegistry(),
    directory: new Directory(),
    agents: { address: { host: '127.0.0.1', port: 0 } },
    limits: { sessions: 100, identifiers: 256, identifierBytes: 8192, waiting: 100, waitingOfSource: 100 },
  });
  context.after(() => running.close());
  const session = async (tenant: string, agentId: string) => {
    const socket = net.connect(Number(running.agentAddress.split(':').at(-1)), '127.0.0.1');
    await once(socket, 'connect');
    const { renewal } = await requestLink(
      socket,
      'hub',
      { agentId, identifiers: '', version: '1', token: `${tenant} first` },
      60_000,
    );
    const done = { renewed: 0 };
    const link = new LinkServer({
      ...{ socket, peer: 'hub h1', role: 'agent' as const, events: planeEvents() },
      dial: () => Promise.reject(new Error('no dial was expected')),
      receive: ({ type }) => void (type === 'renewed' && done.renewed++),
    });
    context.after(() => link.destroy(new Error('the test is over')));
    assert.equal(renewal, true);
    return { renew: () => link.send({ type: 'credential', token: `${tenant} fresh` }), done, link };
  };
  return { running, events, session, verified, refused };
}

test('sessions of a tenant that all renew at once keep none of another from it', {
  timeout: 60_000,
}, async (context) => {
  const texts = { 'a.yaml': 'tenant: a\nlimits: {renewalsPerSecond: 1}', 'b.yaml': 'tenant: b' };
  const { session, verified, refused } = await tokenHub(context, texts);
  const many = await Promise.all(Array.from({ length: 20 }, (_, i) => session('a', `a${i}`)));
  const other = await session('b', 'b0');
  for (const { renew } of many) renew();
  other.renew();
  const done = () => many.filter((each) => each.done.renewed > 0).length;
  await until(() => other.done.renewed === 1 && done() + refused.length === many.length);
  assert.ok(done() >= 1 && refused.length > 0, `${done()} renewed`);
  assert.equal(
    verified.filter((token) => token === 'a fresh').length,
    done(),
    'a token beyond the limit is not verified',
  );
  assert.equal(
    refused[0],
    'limits.renewalsPerSecond: tenant a has reached its limit renewalsPerSecond of 1: send the token again later (a.yaml: limits.renewalsPerSecond)',
  );
});
