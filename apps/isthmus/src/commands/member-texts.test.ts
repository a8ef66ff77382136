import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { differencesOf } from '@isthmus/findings';
import { styleOf } from '../output/style.ts';
import { reasonOf } from '../plane/reason.ts';
import { lastDifferent } from '../plane/warnings.ts';
import { configText } from './config.ts';
import { changeText } from './quarantine.ts';

const plain = styleOf(false);

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
      configText({ members, differences, unanswered: [] }, false, plain),
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
  [
    { details: 'No connection established. Last error: connect ECONNREFUSED 10.0.0.1:8095. Resolution note: x' },
    /^connect ECONNREFUSED 10\.0\.0\.1:8095 \(nothing listens there/,
  ],
  [
    {
      details:
        "No connection established. Last error: Error: the server's certificate (CN=a, serial 01) is refused: it was issued by CN=b, which is not a trusted authority here. Resolution note: x",
    },
    /^the server's certificate \(CN=a.* which is not a trusted authority here \(its certificate is not from a CA in --ca\)$/,
  ],
  [{ details: 'Connection dropped' }, /if it uses TLS, give --ca, --cert and --key\)$/],
  [
    { details: 'No connection established. Last error: Failed to connect (2026-05-01T12:00:00.000Z)' },
    /^Failed to connect \(it closed the connection: if it uses TLS/,
  ],
  [{ name: 'AbortError', message: 'aborted' }, /^no answer within 5 s: it hangs, or the network drops packets$/],
  [
    { message: '/x UNIMPLEMENTED: unknown method Dial', details: 'The server does not implement the method Dial' },
    /^it does not know this request: it runs an older version$/,
  ],
  [{ message: 'something else' }, /^something else$/],
];

describe('why a member did not answer', () => {
  for (const [error, text] of REASONS) {
    it(`is one line: ${text.source}`, () => assert.match(reasonOf(Object.assign(new Error(), error), 5000), text));
  }
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
      changeText(view),
      'a of tenant acme takes no new dials; 1 session known at gw-1, 2 tunnels stay open\n',
    );
    assert.equal(
      changeText({ ...view, quarantined: false }),
      'a of tenant acme takes dials again; 1 session known at gw-1\n',
    );
  });

  it('says that the agent is unknown, and what was done anyway', () => {
    const none = { ...view, known: false, sessions: 0, tunnels: 0 };
    assert.match(changeText(none), /^No agent a of tenant acme is known at gw-1: check .* It is in quarantine anyway/);
    assert.match(changeText({ ...none, quarantined: false }), /It was not in quarantine/);
  });
});
