import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type DialView, dialText } from '../dial/text.ts';
import { styleOf } from '../output/style.ts';
import { dryRunText } from './drain.ts';
import { explainText, type GatewayView } from './explain-text.ts';

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
      dialText(view, 76, plain),
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
    const last = (more: Partial<DialView>) =>
      dialText({ ...rest, ...more }, 76, plain)
        .split('\n')
        .at(-2);
    assert.equal(last({ silentMs: 2000 }), 'No byte arrived within 2000 ms');
    assert.equal(last({ ended: 'closed by the destination' }), 'No byte arrived: closed by the destination');
    assert.match(last({}) ?? '', /^first byte/, 'nothing where none was waited for');
  });

  it('says what to do if it failed', () => {
    const error = { code: 'connection_refused', text: 'connection refused', advice: ['look at it', 'or elsewhere'] };
    const shown = dialText({ ...view, ok: false, error, phases: [] }, 76, plain);
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
    const agreed = explainText(
      { destination: 'x:1', gateways: [gateway('gw-1'), gateway('gw-2')], unanswered: [] },
      plain,
    );
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
    const apart = explainText({ destination: 'x:1', gateways: [gateway('gw-1'), blind], unanswered: [] }, plain);
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
  const told = (...gateways: GatewayView[]) => explainText({ destination: 'x:1', gateways, unanswered: [] }, plain);

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
  it('is who has nowhere to go, and what may be cut', () => {
    const moves = [
      { session: 's1', tenant: 'default', agent: 'node-a', elsewhere: 0, tunnels: 1 },
      { session: 's2', tenant: 'default', agent: 'node-b', elsewhere: 1, tunnels: 0 },
    ];
    const running = [{ dial: 'd1', destination: '10.0.0.5:10250', agent: 'node-a', ageMs: 65_000, bytes: 1500 }];
    assert.equal(
      dryRunText(
        { hub: 'hub-1', dryRun: true, sessions: 2, tunnels: 1, stranded: 1, gracefulMs: 25_000, moves, running },
        plain,
      ),
      [
        'Draining hub-1 would send away 2 sessions, 1 of them with nowhere else to go; 1 tunnel would run on until it ends. Nothing was changed.',
        '',
        'AGENT    TENANT    SESSIONS ELSEWHERE   TUNNELS   SESSION',
        'node-a   default                 none         1   s1',
        'node-b   default                    1         0   s2',
        '',
        'Running now. Draining cuts none; stopping hub-1 cuts those that still run after 25 s:',
        'DESTINATION      AGENT    AGE     BYTES   DIAL',
        '10.0.0.5:10250   node-a   1m5s   1.5 kB   d1',
        '',
        '1 session has nowhere else to go: until its agent has another hub, dials to that agent wait or fail.',
        'Give such agents --session-count=2 or more, or wait until they have connected to another hub.',
        '',
      ].join('\n'),
    );
  });

  it('does not speak of seconds where there are none', () => {
    const view = { hub: 'hub-1', dryRun: true, sessions: 0, tunnels: 1, stranded: 0, moves: [] };
    const running = [{ dial: 'd1', destination: '10.0.0.5:10250', agent: 'node-a', ageMs: 65_000, bytes: 1500 }];
    const shown = (gracefulMs?: number) =>
      dryRunText({ ...view, running, ...(gracefulMs !== undefined && { gracefulMs }) }, plain);
    assert.match(shown(0), /^Running now. Draining cuts none; stopping hub-1 cuts those that still run:$/m);
    assert.match(shown(), /^Running now. Draining cuts none, and hub-1 waits for them before it stops:$/m);
    assert.match(
      shown(),
      /^Draining hub-1 would send away 0 sessions; 1 tunnel would run on until it ends. Nothing was changed.$/m,
    );
  });
});
