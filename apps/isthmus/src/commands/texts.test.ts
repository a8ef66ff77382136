import assert from 'node:assert/strict';
import { describe, it, test } from 'node:test';
import { differencesOf } from '@isthmus/findings';
import { costsItsLength } from '@isthmus/runtime/testing';
import { styleOf } from '../output.ts';
import { lastDifferent } from '../plane/evidence.ts';
import { reasonOf } from '../plane/plane.ts';
import { quarantineText } from './agents.ts';
import { configText } from './config.ts';
import { type DialView, dialText } from './dial-text.ts';
import { explainText, type GatewayView } from './explain.ts';
import { dryRunText } from './hubs.ts';
import { tunnelsText } from './tunnels.ts';

const plain = styleOf(false);

describe('what dial prints', () => {
  const view: DialView = {
    destination: '10.0.0.5:10250',
    gateway: 'gw-1',
    ok: true,
    dial: 'd1',
    trace: 't1',
    tenant: 'default',
    agent: 'node-a',
    hub: 'hub-1',
    session: 's1',
    ms: 8,
    firstByteMs: 4,
    phases: [
      { name: 'gateway', depth: 0, startMs: 0, ms: 8, detail: '', failed: false },
      {
        name: 'attempt',
        depth: 1,
        startMs: 0,
        ms: 2,
        detail: 'first, agent node-b on hub hub-2, session s2, failed: connection_terminated',
        failed: true,
      },
      {
        name: 'attempt',
        depth: 1,
        startMs: 2,
        ms: 6,
        detail: 'retry, agent node-a on hub hub-1, session s1, established',
        failed: false,
      },
      { name: 'dns', depth: 3, startMs: 4, ms: 1, detail: '', failed: false },
      { name: 'first_byte', depth: 0, startMs: 8, ms: 4, detail: '', failed: false },
    ],
  };

  it('has the verdict, the ids, and the phases as bars', () => {
    assert.equal(
      dialText(view, { ...plain, columns: 76 }),
      [
        '10.0.0.5:10250 answers through node-a at hub-1: 8.0 ms',
        'gateway gw-1, tenant default, dial d1, trace t1',
        '',
        'gateway       8.0 ms  ████████████████',
        '  attempt     2.0 ms  ████                      first, agent node-b on hub hub-2, failed: connection_terminated',
        '  attempt     6.0 ms      ████████████          retry, agent node-a on hub hub-1, established',
        '      DNS     1.0 ms          ██',
        'first byte    4.0 ms                  ████████',
        '',
      ].join('\n'),
    );
  });

  it('says that no byte came, and why, if one was waited for', () => {
    const { firstByteMs: _, ...rest } = view;
    const said = (more: Partial<DialView>) => dialText({ ...rest, ok: false, ...more }, plain).split('\n')[0];
    const accepts = '10.0.0.5:10250 accepts through node-a at hub-1 after 8.0 ms, and';
    assert.equal(said({ silentMs: 2000 }), `${accepts} sends no byte within 2000 ms`);
    const ended = 'closed by the destination';
    assert.equal(said({ ended }), `${accepts} ends without a byte: ${ended}`);
  });

  it('says what to do if it failed', () => {
    const error = { code: 'connection_refused', text: 'connection refused', advice: ['look at it', 'or elsewhere'] };
    const shown = dialText({ ...view, ok: false, error, phases: [] }, plain);
    assert.equal(
      shown,
      [
        '10.0.0.5:10250 cannot be dialled through node-a at hub-1: connection_refused: connection refused',
        'gateway gw-1, tenant default, dial d1, trace t1',
        '',
        'What to do:',
        '  - look at it',
        '  - or elsewhere',
        '',
      ].join('\n'),
    );
  });
});

describe('what explain prints', () => {
  const candidate = {
    agent: 'node-a',
    hub: 'hub-1',
    session: 's1',
    zone: '',
    key: '10.0.0.0/8',
    standing: 'taken',
    why: '',
    tunnels: 3,
  } as const;
  const gateway = (id: string, zone = ''): GatewayView => ({
    gateway: id,
    tenant: 'default',
    zone,
    verdict: 'a dial goes to node-a',
    agent: 'node-a',
    hub: 'hub-1',
    session: 's1',
    steps: [
      { strategy: 'destHost', taken: false, keys: [], candidates: [] },
      { strategy: 'destCIDR', taken: true, keys: [{ key: '10.0.0.0/8', sessions: 1 }], candidates: [candidate] },
    ],
    others: [],
    advice: [],
  });

  it('is one block for gateways that agree, and one for each that differs', () => {
    const agreed = explainText({ destination: 'x:1', gateways: [gateway('gw-1'), gateway('gw-2')] }, plain);
    assert.equal(
      agreed,
      [
        'x:1, tenant default, at gw-1, gw-2',
        'a dial goes to node-a',
        '',
        '1. destHost: does not apply',
        '2. destCIDR: 10.0.0.0/8 (1)  <- chosen',
        '     STANDING   AGENT    HUB     ZONE   FOUND BY     TUNNELS   WHY',
        '     takes it   node-a   hub-1   -      10.0.0.0/8         3   -',
        '',
      ].join('\n'),
    );
    const blind = { ...gateway('gw-2'), steps: [], agent: '', verdict: 'a dial fails', advice: ['start an agent'] };
    const apart = explainText({ destination: 'x:1', gateways: [gateway('gw-1'), blind] }, plain);
    assert.match(
      apart,
      /x:1, tenant default, at gw-1\n[\s\S]*\nx:1, tenant default, at gw-2\na dial fails\n[\s\S]*What to do:\n {2}- start an agent\n$/,
    );
  });
});

describe('what explain prints of a policy', () => {
  const gateway: GatewayView = {
    ...{ gateway: 'gw-1', tenant: 'acme', zone: '', verdict: 'a dial goes to node-a', agent: 'node-a', hub: 'hub-1' },
    ...{ session: 's1', steps: [], others: [], advice: [] },
  };
  const told = (...gateways: GatewayView[]) => explainText({ destination: 'x:1', gateways }, plain);

  it('is the rule that allows a dial, behind the verdict', () => {
    const allowed = told({ ...gateway, policy: { allowed: true, rule: 'pods' } });
    assert.equal(
      allowed,
      [
        'x:1, tenant acme, at gw-1',
        'a dial goes to node-a',
        'Allowed by the policy of tenant acme: by rule pods. Agents check the addresses of a name again.',
        '',
        '',
      ].join('\n'),
    );
    const unnamed = told({ ...gateway, policy: { allowed: true, rule: '' } });
    assert.match(unnamed, /Allowed by the policy of tenant acme: no rule refuses it\./);
  });

  it('is nothing for a tenant without one, and apart for gateways whose policies differ', () => {
    assert.doesNotMatch(told(gateway), /policy/);
    const other = { ...gateway, gateway: 'gw-2', policy: { allowed: true, rule: 'pods' } };
    assert.match(told(gateway, other), /at gw-1\n[\s\S]*at gw-2\n/);
  });
});

describe('what a dry run of a drain prints', () => {
  const running = [
    {
      dial: 'd1',
      destination: '10.0.0.5:10250',
      agent: 'node-a',
      caller: 'uds',
      ageMs: 65_000,
      bytes: 1500,
      idleMs: 0,
      fate: 'cut',
    },
  ];

  it('is who has nowhere to go, and what may be cut', () => {
    const moves = [
      { session: 's1', tenant: 'default', agent: 'node-a', elsewhere: 0, tunnels: 1 },
      { session: 's2', tenant: 'default', agent: 'node-b', elsewhere: 1, tunnels: 0 },
    ];
    assert.equal(
      dryRunText(
        { hub: 'hub-1', dryRun: true, sessions: 2, tunnels: 1, stranded: 1, gracefulMs: 25_000, moves, running },
        plain,
      ),
      [
        'Draining hub-1 would send away 2 sessions, 1 of them with nowhere else to go; 1 tunnel would move, or run on until it ends. Nothing was changed.',
        '',
        'AGENT    TENANT    SESSIONS ELSEWHERE   TUNNELS   SESSION',
        'node-a   default                 none         1   s1',
        'node-b   default                    1         0   s2',
        '',
        'Running now. Draining cuts none; stopping hub-1 cuts those that still run after 25 s:',
        'DESTINATION      AGENT    CALLER   AGE     BYTES   USE      THEN   DIAL',
        '10.0.0.5:10250   node-a   uds      1m5s   1.5 kB   in use   cut    d1',
        '',
        '1 session has nowhere else to go: until its agent has another hub, dials to that agent wait or fail.',
        'Give such agents --session-count=2 or more, or wait until they have connected to another hub.',
        '',
      ].join('\n'),
    );
  });

  it('does not speak of seconds where there are none', () => {
    const view = { hub: 'hub-1', dryRun: true, sessions: 0, tunnels: 1, stranded: 0, moves: [] };
    const shown = (gracefulMs?: number) =>
      dryRunText({ ...view, running, ...(gracefulMs !== undefined && { gracefulMs }) }, plain);
    assert.match(shown(0), /^Running now. Draining cuts none; stopping hub-1 cuts those that still run:$/m);
    assert.match(shown(), /^Running now. Draining cuts none, and hub-1 waits for them before it stops:$/m);
    assert.match(
      shown(),
      /^Draining hub-1 would send away 0 sessions; 1 tunnel would move, or run on until it ends. Nothing was changed.$/m,
    );
  });
});

describe('what config prints', () => {
  const flag = (name: string, value: string, source: 'default' | 'given' = 'given') => ({
    name,
    value,
    source,
    default: '',
  });
  const members = [
    {
      member: 'gw-1',
      program: 'frontend-gw',
      flags: [flag('plane', 'prod'), flag('health-port', '1'), flag('v', '4', 'default')],
    },
    {
      member: 'gw-2',
      program: 'frontend-gw',
      flags: [flag('plane', 'test'), flag('health-port', '2'), flag('v', '4', 'default')],
    },
    { member: 'hub-1', program: 'backend-hub', flags: [flag('plane', 'prod')] },
  ];

  it('has one line if replicas agree, one for each if not, and lists unintended differences', () => {
    const differences = differencesOf(members);
    assert.deepEqual(
      differences.map(({ flag: name }) => name),
      ['plane'],
    );
    assert.equal(
      configText({ members, differences }, false, plain),
      [
        'frontend-gw: gw-1, gw-2',
        'FLAG            AT     VALUE   SOURCE   DEFAULT',
        '--plane         gw-1   prod    given    -',
        '--plane         gw-2   test    given    -',
        '--health-port   gw-1   1       given    -',
        '--health-port   gw-2   2       given    -',
        '',
        'backend-hub: hub-1',
        'FLAG      AT      VALUE   SOURCE   DEFAULT',
        '--plane   hub-1   prod    given    -',
        '',
        'Replicas differ:',
        'frontend-gw: --plane',
        '  gw-1: prod',
        '  gw-2: test',
        '',
      ].join('\n'),
    );
  });
});

const REASONS: readonly (readonly [error: object, text: RegExp])[] = [
  [{ message: 'connect ECONNREFUSED 10.0.0.1:8095' }, /^connect ECONNREFUSED 10\.0\.0\.1:8095 \(nothing listens there/],
  [
    {
      message:
        "the server's certificate (CN=a, serial 01) is refused: it was issued by CN=b, which is not a trusted authority here",
    },
    /^the server's certificate \(CN=a.* which is not a trusted authority here \(its certificate is not from a CA in --ca\)$/,
  ],
  [
    { message: 'socket hang up' },
    /^it ended the connection \(it closed the connection: if it uses TLS, give --ca, --cert and --key\)$/,
  ],
  [{ name: 'AbortError', message: 'aborted' }, /^no answer within 5 s: it hangs, or the network drops packets$/],
  [{ message: 'something else' }, /^something else$/],
];

describe('why a member did not answer', () => {
  for (const [error, text] of REASONS) {
    it(`is one line: ${text.source}`, () => assert.match(reasonOf(Object.assign(new Error(), error), 5000), text));
  }

  it('costs what its length costs to find', () => {
    const message = "the server's certificate ".repeat(40_000);
    costsItsLength(() => reasonOf(new Error(message), 5000));
  });

  it('is that of the first address, where a name has several', () => {
    const refused = ['::1', '127.0.0.1'].map((address) => new Error(`connect ECONNREFUSED ${address}:8095`));
    assert.match(reasonOf(new AggregateError(refused), 5000), /^connect ECONNREFUSED ::1:8095 \(nothing listens there/);
  });
});

describe('what a member warned of last', () => {
  it('lists each warning once, without the fields that differ between lines', () => {
    const line = (msg: string, time: string, fields: object = {}) =>
      JSON.stringify({ level: 'warn', time: new Date(Number(time) * 1000).toISOString(), name: 'a', msg, ...fields });
    const lines = [
      ...[line('old', '1'), line('x', '2'), line('y', '3'), 'no JSON'],
      ...[line('failed', '4', { text: 'self-signed', port: 1 }), line('failed', '5', { text: 'self-signed', port: 1 })],
    ];
    assert.deepEqual(lastDifferent(lines, 65_000), [
      ...['x (1m3s ago)', 'y (1m2s ago)', 'failed: text=self-signed, port=1 (1m ago)'],
    ]);
  });
});

describe('what quarantine prints', () => {
  const view = { agent: 'a', tenant: 'acme', quarantined: true, by: 'gw-1', known: true, sessions: 1, tunnels: 2 };

  it('names the tenant, what is known about the agent, and the member that says so', () => {
    assert.equal(
      quarantineText(view),
      'a of tenant acme takes no new dials; 1 session known at gw-1, 2 tunnels stay open\n',
    );
    assert.equal(
      quarantineText({ ...view, quarantined: false }),
      'a of tenant acme takes dials again; 1 session known at gw-1\n',
    );
  });

  it('says that the agent is unknown, and what was done anyway', () => {
    const none = { ...view, known: false, sessions: 0, tunnels: 0 };
    assert.match(
      quarantineText(none),
      /^No agent a of tenant acme is known at gw-1: check .* It is in quarantine anyway/,
    );
    assert.match(quarantineText({ ...none, quarantined: false }), /It was not in quarantine/);
  });
});

const TUNNEL = {
  dial: '00000000000000d1',
  tenant: 'default',
  destination: '10.0.0.7:10250',
  agent: 'node-7',
  hub: 'hub-2',
  session: 's1',
  caller: 'uds',
  since: '2026-11-21T10:00:00.000Z',
  ageMs: 60_000,
  bytesUp: 1,
  bytesDown: 2,
  through: [],
};
const ATTACHED = { ...TUNNEL, resume: { attached: true, moves: 3, keptBytes: 2048 } };
const DETACHED = { ...TUNNEL, resume: { attached: false, moves: 1, keptBytes: 0 } };

/** Returns the headings and cells that follow the bytes, a line each. */
function shown(tunnels: readonly (typeof TUNNEL)[], wide: boolean): string[] {
  const style = styleOf(false, { columns: Number.POSITIVE_INFINITY, wide });
  const text = tunnelsText(tunnels, style);
  const lines = text.split('\n').slice(0, tunnels.length + 1);
  return lines.map((line) => line.split(/ {2,}/).slice(9).join(' | '));
}

test('tunnels that outlive their hub say so with -o wide: state, moves, and what is kept', () => {
  assert.deepEqual(shown([ATTACHED, TUNNEL], true), ['STATE | MOVES | KEPT', 'attached | 3 | 2.0 kB', '- | - | -']);
});

test('without it, the state is shown only if a tunnel waits for another session', () => {
  assert.deepEqual(shown([ATTACHED, TUNNEL], false), ['', '', '']);
  assert.deepEqual(shown([ATTACHED, DETACHED, TUNNEL], false), ['STATE', 'attached', 'detached', '-']);
});
