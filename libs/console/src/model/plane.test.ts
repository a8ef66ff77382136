import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { aHub, aList, aLoss, aSession, aStatus } from '@isthmus/findings/testing';
import { Admission, Role } from '@isthmus/proto/admin-enums';
import type { Hub } from '../rpc.ts';
import { aMember, aPlane } from '../testing.ts';
import { lostOf } from './findings.ts';
import { agentsOf, groupsOf, healthOf, hrefOf, lookAt, NOTHING, tenantsOf } from './plane.ts';

const down = [aHub('h1', { link: 3 }), aHub('h2')];

function silent(id: string, why: string) {
  const { status: _status, ...rest } = aMember(id);
  return { ...rest, silent: why };
}

test('a member is as well as it says, unless gateways have lost it, and hangs if neither they nor the page reach it', () => {
  const g1 = aMember('g1', { list: aList({ hubs: down }) });
  const hubs = [...down, aHub('h3', { draining: true })];
  const of = (member: ReturnType<typeof aMember>) => healthOf(member.id, aPlane({ members: [g1, member], hubs }));
  assert.equal(of(aMember('h1')), 'unlinked');
  assert.equal(of(silent('h1', 'no answer')), 'hung');
  assert.equal(of(aMember('h3')), 'draining');
  assert.equal(of(aMember('h2')), 'ok');
  assert.equal(of(aMember('h2', { status: aStatus({ ready: false }) })), 'unready');
  for (const admission of [Admission.ADMISSION_LEAVING, Admission.ADMISSION_DRAINING]) {
    assert.equal(of(aMember('h2', { status: aStatus({ ready: false, admission }) })), 'draining');
  }
  assert.equal(of(silent('h3', 'no link')), 'drained');
  assert.equal(of(silent('h2', 'no answer')), 'silent');
  assert.equal(of(silent('g2', 'no answer')), 'hung');
});

test('a hub that is not on the list of members hangs only if gateways have lost it', () => {
  const hubs = [...down, aHub('h3', { draining: true })];
  const seen = aPlane({ members: [aMember('g1', { list: aList({ hubs }) })], hubs });
  assert.deepEqual(
    hubs.map(({ hubId }) => healthOf(hubId, seen)),
    ['hung', 'silent', 'draining'],
  );
});

test('a hub that went away without a word is lost, until it is back', () => {
  const hub = { role: Role.ROLE_HUB, tenant: '' };
  const losses = [aLoss('h1', hub), aLoss('h2', { ...hub, left: true })];
  const members = [aMember('g1', { status: aStatus({ losses }) })];
  const lost = (hubs: readonly Hub[]) => lostOf(aPlane({ members, hubs }), Role.ROLE_HUB).map(({ id }) => id);
  assert.deepEqual([lost([]), lost([aHub('h1')])], [['h1'], []]);
});

const HUBS = [aHub('h1', { zone: 'a' }), aHub('h2', { zone: 'b' })];

function statesOf(...sessions: ReturnType<typeof aSession>[]) {
  return agentsOf(sessions, HUBS).map(({ id, state }) => `${id} ${state}`);
}

test('an agent is as well as its sessions', () => {
  const both = (given: Parameters<typeof aSession>[0]) => [
    aSession({ ...given, hubId: 'h1' }),
    aSession({ ...given, hubId: 'h2' }),
  ];
  assert.deepEqual(statesOf(...both({})), ['a ok']);
  assert.deepEqual(statesOf(aSession()), ['a thin']);
  assert.deepEqual(statesOf(...both({ draining: true })), ['a draining']);
  assert.deepEqual(statesOf(...both({ suspected: true })), ['a suspect']);
  assert.deepEqual(statesOf(aSession({ suspected: true }), aSession({ hubId: 'h2' })), ['a ok']);
  assert.deepEqual(statesOf(...both({ quarantined: true })), ['a quarantined']);
  assert.deepEqual(
    agentsOf([aSession()], [aHub('h1')]).map(({ state }) => state),
    ['ok'],
  );
  assert.deepEqual(
    agentsOf([aSession()], [aHub('h1'), aHub('h2', { draining: true })]).map(({ state }) => state),
    ['ok'],
  );
});

test('a lost agent stays among those of its zone, worst of all, and without sessions', () => {
  const sessions = [aSession({ quarantined: true, hubId: 'h2' })];
  const [group, ...more] = groupsOf(agentsOf(sessions, HUBS, [aLoss('b', { hubId: 'h2' })]));
  assert.deepEqual(
    group?.agents.map(({ id, state, sessions: held }) => [id, state, held.length]),
    [
      ['b', 'lost', 0],
      ['a', 'quarantined', 1],
    ],
  );
  assert.deepEqual(more, []);
});

test('what is chosen in a view has an address, whatever its name', () => {
  assert.equal(hrefOf('plane', 'a/b c'), '#/plane/a%2Fb%20c');
  assert.equal(hrefOf('tunnels', '', 'g1'), '#/tunnels//g1');
  assert.equal(hrefOf('dials', ''), '#/dials');
  assert.equal(hrefOf('plane', 'x\ud800'), '#/plane/x');
});

test('agents of two tenants with one id are two, and tunnels are added', () => {
  const sessions = [
    aSession({ tenant: 'acme', tunnels: 2 }),
    aSession({ tenant: 'beta' }),
    aSession({ tenant: 'acme', hubId: 'h2', tunnels: 3 }),
  ];
  const agents = agentsOf(sessions, HUBS);
  assert.deepEqual(
    agents.map(({ tenant, zones, tunnels }) => [tenant, zones, tunnels]),
    [
      ['acme', 'a + b', 5],
      ['beta', 'a', 0],
    ],
  );
});

test('10,000 agents are grouped by tenant and zone, with what is not well first', () => {
  const sessions = Array.from({ length: 10_000 }, (_, n) => {
    return ['h1', 'h2'].map((hubId) => {
      return aSession({ tenant: `t${n % 10}`, agentId: `a${n}`, hubId, quarantined: n === 777 });
    });
  }).flat();
  const groups = groupsOf(agentsOf(sessions, HUBS));
  assert.equal(groups.length, 10);
  const [first] = groups;
  assert.deepEqual([first?.tenant, first?.agents[0]?.id, first?.counts.quarantined], ['t7', 'a777', 1]);
  assert.ok(groups.every(({ agents }) => agents.length === 1000));
});

test('a tenant says where it comes from, and what is wrong with it comes first', () => {
  const known = { tunnels: 0, pendingDials: 0, callers: [], use: [], certificates: [], apiServerNames: [], state: 'a' };
  const tenants = [
    { ...known, name: 'acme-prod', file: 'acme.prod.yaml', source: 'Cluster acme/prod', agents: 2, sessions: 4 },
    { ...known, name: 'beta', file: 'beta.yaml', source: '', agents: 0, sessions: 0 },
  ];
  const problem = (file: string, message: string, kept = '') => ({ file, message, kept, line: 0, column: 0 });
  const wrong = problem('Cluster acme/prod', 'secret acme/prod-ca has no key "tls.crt"', 'acme-prod');
  const reviewer = problem('beta.yaml', 'reviewer.conf: it has no server');
  const problems = [wrong, reviewer, problem('Cluster b/new', 'there is no secret b/new-ca yet')];
  const members = ['g1', 'h1'].map((id) =>
    aMember(id, { tenants: { configured: true, problems, tenants, unopened: [] } }),
  );
  assert.deepEqual(tenantsOf({ members }), [
    { tenant: '', from: 'Cluster b/new', agents: 0, wrong: 'there is no secret b/new-ca yet' },
    { tenant: 'acme-prod', from: 'Cluster acme/prod', agents: 2, wrong: wrong.message },
    { tenant: 'beta', from: 'beta.yaml', agents: 0, wrong: reviewer.message },
  ]);
});

/** A plane whose page looks at it: what each member says of sessions, by its id. */
function sessionsSaid(context: TestContext, said: Readonly<Record<string, readonly ReturnType<typeof aSession>[]>>) {
  const hubs = [aHub('h1'), aHub('h2')];
  context.mock.method(globalThis, 'fetch', async (_: string, { body }: { readonly body: string }) => {
    const { method, members = Object.keys(said) } = JSON.parse(body) as { method: string; members?: string[] };
    const answers = (id: string) => ({
      ...{ GetStatus: aStatus({ memberId: id }), ListMembers: aList({ hubs }), ListQuarantined: { agents: [] } },
      ...{ ListTenants: { configured: false, tenants: [], problems: [] }, ListSessions: { sessions: said[id] } },
    });
    const lines = (members.length === 0 ? ['g1'] : members).map((id) => {
      const roles = [id.startsWith('g') ? 'gateway' : 'hub'];
      const answer = (answers(id) as Readonly<Record<string, object>>)[method];
      return `${JSON.stringify({ member: { id, roles, address: '', version: '', zone: '' }, answer })}\n`;
    });
    return new Response(lines.join(''));
  });
}

test("an agent's state is its hub's word: a gateway's copy is older", async (context) => {
  const silent = aSession({ agentId: 'silent', draining: true });
  const there = aSession({ hubId: 'h2', agentId: 'there' });
  const copies = [silent, aSession({ agentId: 'ended', draining: true }), there];
  sessionsSaid(context, { g1: copies, h1: [{ ...silent, suspected: true }] });
  const { sessions, hubs } = await lookAt(NOTHING, 'g1', true);
  assert.deepEqual(
    agentsOf(sessions, hubs).map(({ id, state }) => [id, state]),
    [
      ['silent', 'suspect'],
      ['there', 'thin'],
    ],
  );
});

test('the state of an agent whose hub does not answer is the word of a gateway that reaches the hub', async (context) => {
  const copy = aSession({ hubId: 'h2' });
  sessionsSaid(context, { g1: [{ ...copy, suspected: true }], g2: [copy], h1: [] });
  const { sessions, hubs } = await lookAt(NOTHING, 'g1', true);
  assert.deepEqual(
    agentsOf(sessions, hubs).map(({ id, state }) => [id, state]),
    [['a', 'thin']],
  );
});
