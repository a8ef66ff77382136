import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Admission, Notice_Kind as Kind } from '@isthmus/proto/admin-enums';
import type { Evidence, Tenants } from './evidence.ts';
import { judge } from './judge.ts';
import { CHECKS, findingsIn } from './result.ts';
import { aHub, aList, aLoss, aSession, aStatus, aWitness } from './testing.ts';

const NOW = 1_000_000;
const DAY_MS = 86_400_000;

const hubs = [aHub('h1'), aHub('h2')];

/** A plane that is well, with what a test gives. */
function plane(given: Partial<Evidence> = {}): Evidence {
  const members = [aWitness('g1', { list: aList({ hubs }) }), aWitness('h1', { roles: ['hub'] })];
  const sessions = [aSession(), aSession({ hubId: 'h2' })];
  return { members, hubs, sessions, clocks: [{ of: 'this browser', aheadMs: 0 }], now: NOW, ...given };
}

/** A gateway that says this. */
function saying(status: Parameters<typeof aStatus>[0], list = aList({ hubs })): Partial<Evidence> {
  return { members: [aWitness('g1', { status: aStatus({ nowMs: NOW, ...status }), list })] };
}

test('of a plane that is well, every check passes', () => {
  const results = judge(plane());
  assert.deepEqual(findingsIn(results), []);
  assert.deepEqual(
    [...new Set(results.map(({ check }) => check))],
    ['members', 'clocks', 'versions', 'links', 'agents'],
  );
});

test('an agent that does not reach a server says which address leads elsewhere', () => {
  const text = 'connected to 1 of 2 servers: 10.0.0.5:8091: server x of no plane answers where a hub of plane p should';
  const notices = [{ kind: Kind.KIND_SERVERS, text, todo: '' }];
  const [found, ...others] = findingsIn(judge(plane(saying({ notices })), ['members']));
  assert.deepEqual([found?.outcome, found?.about, found?.detail, others.length], ['warn', 'g1', text, 0]);
});

test('a notice is judged by its kind, whatever its text says', () => {
  const { KIND_TENANT_FILE, KIND_NODES, KIND_CERTIFICATE_EXPIRED, KIND_CERTIFICATE_EXPIRES, KIND_CERTIFICATE_FAULT } =
    Kind;
  const rows: readonly [Kind, string | undefined][] = [
    [KIND_TENANT_FILE, undefined],
    [
      KIND_NODES,
      'warn members g1: certificate: fix what it names: until then, /sd lists the nodes that were read last',
    ],
    [KIND_CERTIFICATE_EXPIRES, 'warn certificates g1, its own: certificate: do: programs use the new ones within 10 s'],
    [KIND_CERTIFICATE_FAULT, 'fail certificates g1, its own: certificate: do'],
    [KIND_CERTIFICATE_EXPIRED, 'fail certificates g1, its own: certificate: do: programs use the new ones within 10 s'],
    [99 as Kind, 'warn members g1: certificate: do'],
  ];
  for (const [kind, wanted] of rows) {
    const notices = [{ kind, text: 'certificate', todo: 'do' }];
    const found = findingsIn(judge(plane(saying({ notices })), ['members', 'certificates']));
    const lines = found.map(
      ({ outcome, check, about, detail, todo }) => `${outcome} ${check} ${about}: ${detail}: ${todo}`,
    );
    assert.deepEqual(lines, wanted === undefined ? [] : [wanted]);
  }
});

test('some checks alone can be asked for', () => {
  assert.deepEqual(
    [...new Set(judge(plane(), ['agents', 'members']).map(({ check }) => check))],
    ['members', 'agents'],
  );
});

const down = [aHub('h1', { link: 3 }), aHub('h2')];
const refusal = {
  where: 'agents',
  remote: '10.0.0.9:1',
  reason: 'the peer went away during the TLS handshake',
  distrusted: true,
  count: 3,
  firstMs: 1,
  lastMs: NOW - 5000,
};
const tenant = {
  name: 'acme',
  file: 'acme.yaml',
  source: '',
  agents: 1,
  sessions: 1,
  callers: [],
  tunnels: 1,
  pendingDials: 0,
};
const certificate = { where: 'server', name: 'CN=x', beginsMs: 1, expiresMs: NOW + 3 * DAY_MS };

function withTenants(
  given: Partial<Tenants['tenants'][number]>,
  problems: Tenants['problems'] = [],
  unopened: Tenants['unopened'] = [],
): Partial<Evidence> {
  const tenants = [{ ...tenant, use: [], certificates: [], apiServerNames: [], state: 'a', ...given }];
  return {
    members: [aWitness('g1', { tenants: { configured: true, problems, tenants, unopened }, list: aList({ hubs }) })],
  };
}

function serving(cidr: string[]) {
  return { ipv4: [], ipv6: [], host: [], cidr, defaultRoute: false };
}

const failing = {
  tenant: 'default',
  destination: '10.0.0.7:443',
  code: 'connection_timeout',
  text: 'no answer',
  count: 9,
  lastMs: NOW - 2000,
  agents: ['a'],
  agentCount: 1,
};

type Row = readonly [what: string, given: Partial<Evidence>, wanted: RegExp, todo: RegExp];

/** What is wrong, what is found, and what to do about it. */
const ROWS: readonly Row[] = [
  [
    'a hub that cannot be reached',
    { hubs: down, members: [aWitness('g1', { list: aList({ hubs: down }) })] },
    /^fail links h1: hub at h1:8097: g1 cannot reach it$/,
    /--advertise-address/,
  ],
  [
    'a hub that hangs',
    {
      hubs: down,
      members: [aWitness('g1', { list: aList({ hubs: down }) }), { ...aWitness('h1'), status: undefined }],
    },
    /^fail links h1: hub at h1:8097: g1 cannot reach it$/,
    /it hangs, is down, or cut off.*restart it/,
  ],
  [
    'a hub that the plane has forgotten',
    saying({
      losses: [aLoss('h9', { role: 2, tenant: '', remote: 'h9:8097', reason: 'silent for 2 s', atMs: NOW - 60_000 })],
    }),
    /^warn missing h9: hub at h9:8097, was lost 1 min 0 s ago by g1, and has not come back: silent for 2 s$/,
    /restart it/,
  ],
  [
    'a gateway that the plane has forgotten',
    saying({
      losses: [aLoss('g9', { role: 1, tenant: '', remote: 'g9:8095', reason: 'silent for 12 s', atMs: NOW - 60_000 })],
    }),
    /^warn missing g9: gateway with its admin port at g9:8095, was lost 1 min 0 s ago by g1, and has not come back: silent for 12 s$/,
    /restart it/,
  ],
  [
    'a member that is not ready',
    saying({ ready: false, checks: [{ name: 'sessions', ok: false, detail: 'none' }] }),
    /^fail members g1: is not ready: sessions: none$/,
    /fix the cause/,
  ],
  [
    'a member that does not answer',
    { members: [{ ...aWitness('h1'), status: undefined, silent: 'no answer in time' }] },
    /^fail members h1: does not answer at h1:8095: no answer in time$/,
    /restart it/,
  ],
  [
    'a registry that takes no writes',
    saying({}, aList({ registry: { up: false, synced: true, detail: 'READONLY', ageMs: 1 } })),
    /^fail links Redis: g1 cannot use it: READONLY$/,
    /REPLICAOF NO ONE/,
  ],
  ...(
    [
      ["redis r:1: NOPERM this user has no permissions to run the 'evalsha' command", /ACL SETUSER/],
      ["redis r:1: ERR The user executing the script can't run this command or subcommand script: 1", /ACL SETUSER/],
      ['redis r:1: WRONGPASS invalid username-password pair or user is disabled.', /--redis-password-file/],
      ['redis r:1: max number of clients reached', /maxclients/],
      ['redis r:1: BUSY Redis is busy running a script.', /SCRIPT KILL/],
      ['redis r:1: LOADING Redis is loading the dataset in memory', /wait/],
      ['redis r:1: WRONGTYPE Operation against a key holding the wrong kind of value', /--plane/],
      ['redis r:1: it takes no writes, because it cannot save to its disk: MISCONF', /Redis' log/],
      ['redis r:1: it takes no writes, because too few replicas follow it: NOREPLICAS Not enough', /Redis' log/],
      ['redis r:1: no answer within 2200 ms', /check that Redis runs/],
      ["redis r:1: ENOENT: no such file or directory, open '/redis-ca.pem'", /^make the file readable/],
    ] as const
  ).flatMap(([detail, todo]): Row[] => [
    [
      `a registry that says: ${detail}`,
      saying({}, aList({ registry: { up: false, synced: true, detail, ageMs: 1 } })),
      /^fail links Redis: g1 cannot use it: redis r:1: /,
      todo,
    ],
    [
      `a list of members that it does not give: ${detail}`,
      { members: [{ id: 'Redis', address: '', roles: [], version: '', silent: `cannot get it (${detail})` }] },
      /^fail members Redis: cannot get it \(redis r:1: /,
      todo,
    ],
  ]),
  ['no agents', { sessions: [] }, /^fail agents the plane: no agent has a session/, /--ca-cert/],
  [
    'an agent with one hub',
    { sessions: [aSession()] },
    /^warn agents a: has a session with only h1, of 2 hubs$/,
    /--session-count/,
  ],
  [
    'an agent that is lost',
    saying({ losses: [aLoss('a6', { atMs: NOW - 60_000, remote: '10.0.0.6:1', reason: 'silent' })] }),
    /^warn missing a6: agent without a session: h1 lost the last one from 10.0.0.6:1 1 min 0 s ago: silent$/,
    /isthmus status --address/,
  ],
  [
    'clocks',
    { members: [aWitness('g1', { aheadMs: 5000 })] },
    /^warn clocks members: g1 is 5,000 ms ahead of this browser$/,
    /NTP/,
  ],
  [
    'versions',
    { members: [aWitness('g1'), aWitness('g2', { version: '2' })] },
    /^warn versions members: 1 at g1; 2 at g2$/,
    /upgrade/,
  ],
  [
    'a refused agent, and who it may be',
    saying({ refusals: [refusal], losses: [aLoss('a6', { left: true, atMs: NOW - 60_000, remote: '10.0.0.9:7' })] }),
    /^warn refusals g1, port for agents: refused 10.0.0.9:1, 3 times, the last 5 s ago: the peer.*; agents that have no session any more: a6 \(for 1 min 0 s\)$/,
    /--ca-cert must hold the CA of the hub's --cluster-cert/,
  ],
  [
    'what callers fail to reach',
    saying({ failing: [failing] }),
    /^warn callers 10.0.0.7:443, at g1: 9 dials failed through a, the last 2 s ago, and none succeeded since: connection_timeout: no answer$/,
    /a firewall or network policy/,
  ],
  [
    'what callers fail to reach through many agents',
    saying({ failing: [{ ...failing, agents: ['a', 'b', 'c', 'd', 'e'], agentCount: 7 }] }),
    /: 9 dials failed through 7 agents, among them a, b, c, d, e, the last/,
    /a firewall or network policy/,
  ],
  ['dials that wait', saying({ parkedDials: 2 }), /^warn callers g1: 2 dials wait for a session$/, /isthmus agents/],
  [
    'a tenant near a limit',
    withTenants({ use: [{ limit: 'tunnels', used: 80, most: 100 }] }),
    /^warn limits tenant acme: uses 80 of 100 tunnels at g1$/,
    /isthmus tunnels --sort age --tenant acme and the console.*limits.tunnels/,
  ],
  [
    'a tenant at a limit',
    withTenants({ use: [{ limit: 'tunnels', used: 100, most: 100 }] }),
    /^fail limits tenant acme: uses 100 of 100 tunnels at g1: what exceeds it is refused$/,
    /raise limits.tunnels/,
  ],
  [
    'a file of which something does not work',
    withTenants({ file: 'b.yaml' }, [{ file: 'b.yaml', line: 2, column: 1, message: 'b.conf: no server', kept: '' }]),
    /^fail tenants b.yaml:2:1: b.conf: no server; its tenant is in force, at g1$/,
    /isthmus tenants check/,
  ],
  [
    "tenants' files",
    withTenants({}, [{ file: 'b.yaml', line: 2, column: 1, message: 'colour is unknown', kept: '' }]),
    /^fail tenants b.yaml:2:1: colour is unknown; its tenant is not in force, at g1$/,
    /isthmus tenants check/,
  ],
  [
    'an object that no tenant could be made of',
    withTenants({}, [
      { file: 'Cluster acme/prod', line: 0, column: 0, message: 'there is no secret acme/prod-ca yet', kept: '' },
    ]),
    /^fail tenants Cluster acme\/prod: there is no secret acme\/prod-ca yet; no tenant of it is in force, at g1$/,
    /fix the object/,
  ],
  [
    'a member whose directory lacks a tenant',
    {
      members: ['g1', 'g2'].map((id) =>
        aWitness(id, {
          tenants: {
            configured: true,
            problems: [],
            unopened: [],
            tenants: id === 'g1' ? [{ ...tenant, use: [], certificates: [], apiServerNames: [], state: 'a' }] : [],
          },
          list: aList({ hubs }),
        }),
      ),
    },
    /^warn tenants g2: does not have tenants that others have: acme$/,
    /see what writes the directory/,
  ],
  [
    'a member whose directory has another file of a tenant',
    {
      members: ['g1', 'g2', 'h1'].map((id) => {
        const state = id === 'g2' ? 'older' : 'newer';
        const tenants = [{ ...tenant, use: [], certificates: [], apiServerNames: [], state }];
        return aWitness(id, {
          tenants: { configured: true, problems: [], unopened: [], tenants },
          list: aList({ hubs }),
        });
      }),
    },
    /^warn tenants g2: has other files than g1, h1 of tenants acme$/,
    /see what writes the directory/,
  ],
  [
    'a CA that is made by a clock that is ahead',
    withTenants({ certificates: [{ ...certificate, beginsMs: NOW + 60_000, expiresMs: NOW + 900 * DAY_MS }] }),
    /^fail tenants acme: server: CN=x is not valid before .*: until then, who shows one of it is refused$/,
    /set the clock of the machine that made it/,
  ],
  [
    'a sync that has not written for long',
    withTenants({}, [
      { file: 'isthmus tenants sync', line: 0, column: 0, message: 'it has not written since 2026', kept: '' },
    ]),
    /^fail tenants isthmus tenants sync: it has not written since 2026, at g1$/,
    /see that it runs beside this member/,
  ],
  [
    "a tenant's port that is not open",
    withTenants(
      {},
      [],
      ['acme.yaml: agents[0].port: agents of tenant acme cannot connect to its port 9132: EADDRINUSE'],
    ),
    /^fail tenants a port at g1: acme.yaml: agents\[0\].port: agents of tenant acme cannot connect to its port 9132/,
    /free the port or path/,
  ],
  [
    'a tenant without agents whose dials fail',
    saying({ failing: [{ ...failing, tenant: 'acme', code: 'destination_unavailable', agents: [], agentCount: 0 }] }),
    /^fail agents tenant acme: no agent has a session: 9 dials of its callers failed in the last minutes$/,
    /isthmus tenants acme/,
  ],
  [
    'the only agent of a tenant, gone after SIGTERM',
    saying({ losses: [aLoss('a6', { tenant: 'acme', left: true, atMs: NOW - 60_000, remote: '10.0.0.6:1' })] }),
    /^warn missing a6 of acme: agent without a session: left h1 from 10.0.0.6:1 1 min 0 s ago, and no other agent serves tenant acme$/,
    /isthmus status --address/,
  ],
  [
    'the only agent that served an address, gone after SIGTERM',
    saying({ losses: [aLoss('a6', { left: true, atMs: NOW - 60_000, identifiers: serving(['10.1.0.0/16']) })] }),
    /^warn missing a6: .* no other agent serves 10.1.0.0\/16$/,
    /isthmus status --address/,
  ],
  [
    'a hub that answers the gateways, and not here',
    { members: [aWitness('g1', { list: aList({ hubs }) }), { ...aWitness('h1'), status: undefined, silent: 'late' }] },
    /^warn members h1: does not answer here at h1:8095: late; g1 reaches it$/,
    /its machine is busy/,
  ],
  [
    "tenants' certificates",
    withTenants({ certificates: [certificate] }),
    /^warn tenants acme: server: CN=x expires on .*, in 3 days$/,
    /renew/,
  ],
];

for (const [what, given, wanted, todo] of ROWS) {
  test(`${what}: is found, with what to do`, () => {
    const found = findingsIn(judge(plane(given)));
    const lines = found.map(({ outcome, check, about, detail }) => `${outcome} ${check} ${about}: ${detail}`);
    const at = lines.findIndex((line) => wanted.test(line));
    assert.ok(at >= 0, lines.join('\n'));
    assert.match(found[at]?.todo ?? '', todo);
  });
}

test('what several members saw is one finding, and what did not happen again for a minute is old and last', () => {
  const at = (id: string, given: Parameters<typeof aStatus>[0]) =>
    aWitness(id, { status: aStatus({ memberId: id, nowMs: NOW, ...given }), list: aList({ hubs }) });
  const before = { ...failing, destination: 'old:1', lastMs: NOW - 61_000 };
  const members = [
    at('g1', { failing: [before, failing], refusals: [{ ...refusal, lastMs: NOW - 61_000 }] }),
    at('g2', {
      failing: [
        { ...failing, count: 3, lastMs: NOW - 1000, agents: ['b'] },
        { ...failing, code: 'dns_error' },
      ],
      refusals: [
        { ...refusal, remote: '10.0.0.9:2', lastMs: NOW - 1_800_000 },
        { ...refusal, remote: '10.0.0.8:1' },
      ],
    }),
  ];
  const found = findingsIn(judge(plane({ members }), ['callers', 'refusals']));
  assert.deepEqual(
    found.map(
      ({ check, about, detail, old }) => `${old ? 'old ' : ''}${check} ${about}: ${detail.split(/, and|: /)[0]}`,
    ),
    [
      'refusals g2, port for agents: refused 10.0.0.8:1, 3 times, the last 5 s ago',
      'callers 10.0.0.7:443, at g1, g2: 12 dials failed through a, b, the last 1 s ago',
      'callers 10.0.0.7:443, at g2: 9 dials failed through a, the last 2 s ago',
      'old refusals g1, g2, port for agents: refused 10.0.0.9:1, 6 times, the last 1 min 1 s ago',
      'old callers old:1, at g1: 9 dials failed through a, the last 1 min 1 s ago',
    ],
  );
});

test('clocks pass within a second, warn above, and fail where certificates would seem invalid', () => {
  const told = (...ahead: number[]) => {
    const members = ahead.map((aheadMs, index) => aWitness(`m${index}`, { aheadMs }));
    return judge(plane({ members, clocks: [] }), ['clocks'])[0]?.outcome;
  };
  assert.deepEqual([told(0, 400, -500), told(0, 2000), told(-20_000, 15_000)], ['pass', 'warn', 'fail']);
});

test('the clock that is off is named, with how far and whom it disagrees with', () => {
  const clocks = [{ of: 'this machine', aheadMs: 0 }];
  const told = (...ahead: readonly (readonly [string, number])[]) => {
    const members = ahead.map(([id, aheadMs]) => aWitness(id, { aheadMs }));
    return judge(plane({ members, clocks }), ['clocks']).map(
      ({ outcome, about, detail }) => `${outcome} ${about}: ${detail}`,
    );
  };
  assert.deepEqual(told(['g1', 20], ['h1', -600_000]), [
    'fail h1: its clock is 10 min 0 s behind that of this machine, g1',
  ]);
  assert.deepEqual(told(['g1', 86_400_000], ['h1', 86_400_010]), [
    'fail this machine: its clock is 24 h 0 min behind that of g1, h1',
  ]);
  assert.deepEqual(
    told(['g1', 5000]),
    ['warn members: g1 is 5,000 ms ahead of this machine'],
    'of two, either may be right',
  );
});

test("agents' clocks are measured by those of members, and do not count for what is right", () => {
  const told = (hubs: readonly number[], agents: readonly number[]) => {
    const members = hubs.map((aheadMs, index) => aWitness(`h${index + 1}`, { aheadMs }));
    const claims = agents.map((aheadMs, index) => ({ of: `agent a${index + 1}`, aheadMs, claimed: true as const }));
    return judge(plane({ members, clocks: claims }), ['clocks']).map(
      ({ outcome, about, detail }) => `${outcome} ${about}: ${detail}`,
    );
  };
  const h3 = 'fail h3: its clock is 10 min 0 s ahead of that of h1, h2';
  assert.deepEqual(told([0, 20, 600_020], []), [h3]);
  assert.deepEqual(told([0, 20, 600_020], [-8000, -4000, 3000, 5000, 600_020]), [
    'warn agent a1: its clock is 8,020 ms behind that of h1, h2',
    'warn agent a2: its clock is 4,020 ms behind that of h1, h2',
    'warn agent a3: its clock is 2,980 ms ahead of that of h1, h2',
    'warn agent a4: its clock is 4,980 ms ahead of that of h1, h2',
    h3,
    'fail agent a5: its clock is 10 min 0 s ahead of that of h1, h2',
  ]);
  assert.deepEqual(
    told([0, 20], Array(8).fill(90_000)),
    Array.from({ length: 8 }, (_, at) => `fail agent a${at + 1}: its clock is 1 min 30 s ahead of that of h1, h2`),
  );
  assert.deepEqual(
    told([0, 600_000], [300_000, 900_000, 900_000]),
    ['fail members: h2 is 10 min 0 s ahead of h1'],
    'of two, either may be right, whatever agents claim',
  );
  const cutOff = aWitness('h1', { roles: ['hub'], aheadMs: 0, silent: 'no link to h1' });
  const site = Array(8).fill({ of: 'agent a', aheadMs: 90_000, claimed: true });
  const evidence = plane({
    members: [{ ...cutOff, status: undefined }, aWitness('h2', { aheadMs: 20 })],
    clocks: site,
  });
  assert.ok(judge(evidence, ['members']).every(({ todo = '' }) => !todo.includes('set it first')));
});

test('what a wrong clock makes of certificates is blamed on the clock', () => {
  const expired = {
    kind: Kind.KIND_CERTIFICATE_EXPIRED,
    text: 'certificate CN=x at the port for agents expired on 2026-01-01',
    todo: 'renew its files in place',
  };
  const reason = 'the client certificate of CN=a is refused: it expired at 2026-05-01T00:00:00.000Z: renew it';
  const refused = {
    where: 'agents',
    remote: '10.0.0.9:1',
    reason,
    count: 1,
    firstMs: NOW,
    lastMs: NOW,
    distrusted: false,
  };
  const late = aWitness('h1', {
    roles: ['hub'],
    aheadMs: 40 * DAY_MS,
    status: aStatus({ nowMs: NOW, notices: [expired], refusals: [refused] }),
  });
  const evidence = plane({ members: [aWitness('g1'), aWitness('g2'), late] });
  const [own] = judge(evidence, ['certificates']);
  assert.match(
    `${own?.detail}: ${own?.todo}`,
    /expired on 2026-01-01, by a clock that is 40 d 0 h ahead of most others: set the clock of this machine first/,
  );
  const lost = aWitness('g1', { list: aList({ hubs: down }), aheadMs: -600_000 });
  const [link] = judge(plane({ members: [lost, aWitness('g2'), aWitness('h1', { roles: ['hub'] })], hubs: down }), [
    'links',
  ]);
  assert.equal(link?.todo, 'the clock of g1 is 10 min 0 s behind most others: set it first (clocks)');
  // It links with nobody, so nobody hears what its clock says.
  const text =
    'it refuses this link: the client certificate of CN=gateway is refused: it expired at 2026-05-01T00:00:00.000Z';
  const refusedBy = aWitness('g1', { list: aList({ hubs: [aHub('h1', { link: 3, failure: { text, atMs: NOW } })] }) });
  const [alone] = judge(
    plane({ members: [refusedBy, { ...late, status: undefined, aheadMs: undefined }], hubs: down }),
    ['links'],
  );
  assert.match(alone?.detail ?? '', /g1 cannot reach it: it refuses this link: .* it expired at 2026-05-01/);
  assert.equal(alone?.todo, 'compare the clocks of h1, g1 first');
  const [refusal] = judge(evidence, ['refusals']);
  assert.equal(refusal?.todo, 'the clock of h1 is 40 d 0 h ahead of most others: set it first (clocks)');
  // It was asked for its clock at its own address.
  const cutOff = { ...late, status: undefined, silent: 'g1 has no link to h1' };
  const found = judge(plane({ members: [refusedBy, aWitness('g2'), cutOff], hubs: down }), ['members', 'links']);
  assert.deepEqual(
    found.flatMap(({ about, todo }) => (about === 'h1' ? [todo] : [])),
    Array(2).fill('the clock of h1 is 40 d 0 h ahead of most others: set it first (clocks)'),
  );
});

test("an agent's certificate that should have been renewed is found where its hub saw it", () => {
  const sessions = [aSession({ agentId: 'e', certificateEndsMs: NOW + 4 * DAY_MS + 1 }), aSession({ agentId: 'f' })];
  const [found, ...others] = judge(plane({ sessions }), ['certificates']);
  assert.equal(others.length, 0);
  assert.match(
    `${found?.outcome} ${found?.about}: ${found?.detail}`,
    /^warn agent e: the certificate of its sessions expires on \d{4}-\d\d-\d\d, in 4 days$/,
  );
});

test('an agent that is asked alone tells of its own sessions', () => {
  const server = { serverId: 'h1', address: 'h1:8091', protocol: 1 as const, plane: 'p', leaving: false, open: 0 };
  const told = (servers: number) => {
    const list = aList({ servers: Array.from({ length: servers }, () => server), serversWanted: 2 });
    const members = [aWitness('a', { roles: ['agent'], list })];
    return judge(plane({ members, hubs: [], sessions: [] }), ['agents']).map(
      ({ outcome, detail }) => `${outcome} ${detail}`,
    );
  };
  assert.deepEqual(
    [told(2), told(1), told(0)],
    [
      ['pass has sessions with 2 of 2 servers'],
      ['warn has sessions with 1 of 2 servers'],
      ['fail has sessions with 0 of 2 servers'],
    ],
  );
});

test('a member that drains does what it was told to', () => {
  const checks = [{ name: 'admission', ok: false, detail: 'draining' }];
  const told = (admission: Admission) => {
    const status = aStatus({ ready: false, checks, admission, sessions: 0, tunnels: 2 });
    return judge(plane({ members: [aWitness('h1', { roles: ['hub'], status })] }), ['members']).map(
      ({ outcome, detail }) => `${outcome} ${detail}`,
    );
  };
  assert.deepEqual(told(Admission.ADMISSION_DRAINING), [
    'pass drains, as it was told: 0 sessions and 2 tunnels are left',
  ]);
  assert.deepEqual(told(Admission.ADMISSION_OPEN), ['fail is not ready: admission: draining']);
});

test('an agent in quarantine is named with the reason, and one of another tenant with the tenant', () => {
  const sessions = [
    aSession({ agentId: 'b', quarantined: true, quarantineReason: 'a test' }),
    aSession({ tenant: 'acme' }),
    aSession({ tenant: 'acme', hubId: 'h2' }),
  ];
  const told = judge(plane({ sessions }), ['agents']).map(
    ({ about, outcome, detail }) => `${about} ${outcome}: ${detail}`,
  );
  assert.deepEqual(told, ['b warn: is in quarantine: a test', 'a of acme pass: has sessions with 2 of 2 hubs']);
});

test('an agent with a session is not lost, nor one that left while others serve what it did', () => {
  const losses = [aLoss('a', { atMs: NOW }), aLoss('b', { atMs: NOW, left: true, identifiers: serving([]) })];
  assert.deepEqual(findingsIn(judge(plane(saying({ losses })))), []);
});

test('a hub that answers is not missing, although a gateway has lost it', () => {
  const losses = [aLoss('h9', { role: 2, tenant: '', remote: 'h9:8097', reason: 'silent for 2 s', atMs: NOW })];
  const members = [...(saying({ losses }).members ?? []), aWitness('h9', { roles: ['hub'] })];
  assert.deepEqual(judge(plane({ members }), ['missing']), []);
});

test('what a check looks at fits a line of its help', () => {
  for (const [name, looksAt] of Object.entries(CHECKS)) assert.ok(looksAt.length <= 64, `${name}: ${looksAt}`);
});
