import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { styleOf } from '../output.ts';
import { run } from '../program.ts';
import { TestTerminal } from '../testing/test-terminal.ts';
import { checkedText, type NewToken, type TenantsView, type TenantView, tenantsText, tokenText } from './tenants.ts';
import { checkTenantFiles } from './tenants-check.ts';

const acme: TenantView = {
  tenant: 'acme',
  file: 'acme.yaml',
  source: '',
  agents: 12,
  sessions: 24,
  callers: ['kube-apiserver'],
  tunnels: 90,
  pendingDials: 1,
  use: [
    { limit: 'agents', member: 'hub-1', used: 12, most: 500 },
    { limit: 'tunnels', member: 'gw-1', used: 90, most: 100 },
    { limit: 'bytesPerSecond', member: 'gw-1', used: 5_000 },
  ],
  certificates: [],
};

const beta: TenantView = {
  ...acme,
  ...{
    tenant: 'beta',
    file: 'b.beta.yaml',
    source: 'Cluster b/beta',
    agents: 0,
    sessions: 0,
    tunnels: 0,
    pendingDials: 0,
    callers: [],
    use: [],
  },
};

describe('what tenants prints', () => {
  const told = (view: Partial<TenantsView>) =>
    tenantsText({ configured: true, tenants: [], problems: [], unanswered: [], ...view }, styleOf(false));

  it('has the agents, callers and fullest limit of each tenant, and each file with a problem, once', () => {
    const unknown = { file: 'bad.yaml', line: 2, column: 1, message: 'colour: unknown field colour' };
    const problems = [
      { ...unknown, members: ['gw-1', 'hub-1'] },
      { file: 'beta.yaml', line: 1, column: 9, message: 'no such file', kept: 'beta', members: ['hub-1'] },
      { file: 'Cluster b/new', line: 0, column: 0, message: 'there is no secret b/new-ca yet', members: ['hub-1'] },
    ];
    assert.equal(
      told({ tenants: [acme, beta], problems }),
      [
        'TENANT   AGENTS   SESSIONS   TUNNELS   PENDING   CALLERS          FULLEST LIMIT                     FROM',
        'acme         12         24        90         1   kube-apiserver   tunnels 90% (90 of 100 at gw-1)   acme.yaml',
        'beta          0          0         0         0   -                -                                 Cluster b/beta',
        '',
        'Files and objects with problems:',
        '  bad.yaml:2:1: colour: unknown field colour, at gw-1, hub-1',
        '  beta.yaml:1:9: no such file (tenant beta stays as it was), at hub-1',
        '  Cluster b/new: there is no secret b/new-ca yet, at hub-1',
        '',
      ].join('\n'),
    );
  });

  it('says what it means if there is none', () => {
    assert.equal(told({}), 'No tenant is in force: nobody can connect. Put files into --tenants-dir\n');
    assert.equal(
      told({ configured: false }),
      'No tenant has a session, tunnel or dial\n\nNo member has --tenants-dir: agents name their tenants themselves\n',
    );
  });
});

describe('what tenants token prints', () => {
  it('is a token, and a line that a tenant of it has in its file', async () => {
    const terminal = new TestTerminal(['tenants', 'token', 'acme', '--name', 'ci: 1', '-o', 'json']);
    assert.equal(await run(terminal), 0);
    const { token, line, ...of } = JSON.parse(terminal.stdout) as NewToken;
    assert.match(token, /^isthmus_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$/);
    assert.deepEqual(of, { tenant: 'acme', name: 'ci: 1' });
    const read = readTenantFile(`tenant: acme\ncallers:\n  ${line}\n`);
    assert.ok('file' in read);
    assert.equal(read.file.callers?.[0]?.passwords?.[0]?.name, 'ci: 1');
    assert.ok(!line.includes(token.slice(-43)));
    assert.equal(tokenText({ ...of, token, line }).split('\n')[0], token);
  });

  it('can be pasted from a narrow terminal', async () => {
    const terminal = new TestTerminal(['tenants', 'token', 'acme'], { interactive: true, columns: 40 });
    assert.equal(await run(terminal), 0);
    const pasted = terminal.stdout.slice(terminal.stdout.indexOf('  - passwords'));
    const read = readTenantFile(`tenant: acme\ncallers:\n${pasted}`);
    assert.ok('file' in read, pasted);
    assert.match(terminal.stdout, /^isthmus_\S+\n/);
  });
});

describe('what tenants check prints', () => {
  it('is every problem at its line and column, of the files and of what they name', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'isthmus-tenants-'));
    try {
      const file = (name: string, ...lines: string[]) => writeFileSync(join(dir, name), `${lines.join('\n')}\n`);
      file('one.yaml', 'tenant: one', 'agents:', '  - certificates: {trustDomain: plane.example}');
      assert.equal(checkedText(await checkTenantFiles([dir])), '1 file: 1 tenant, all can be used\n');
      file('same.yaml', 'tenant: one');
      file('typo.yaml', 'tenant: two', 'agnets: []');
      file('lost.yaml', 'tenant: three', 'agents:', '  - certificates: {ca: nowhere.crt}');
      file('zero.yaml', 'tenant: four', 'agents:', '  - certificates: {ca: /dev/zero}');
      execFileSync('mkfifo', [join(dir, 'pipe'), join(dir, 'pipe.yaml')]);
      file('review.yaml', 'tenant: five', 'agents:', '  - tokenReview: {kubeconfig: pipe}');
      const text = checkedText(await checkTenantFiles([dir])).replaceAll(`${dir}/`, '');
      assert.equal(
        text,
        [
          'lost.yaml:3:24: agents[0].certificates.ca: nowhere.crt: there is no such file',
          'pipe.yaml:1:1: it is not a regular file',
          'review.yaml:3:31: agents[0].tokenReview.kubeconfig: pipe: it is not a regular file',
          'same.yaml:1:9: tenant: tenant one is in one.yaml too',
          'typo.yaml:2:1: agnets: unknown field agnets',
          'zero.yaml:3:24: agents[0].certificates.ca: /dev/zero: it is not a regular file',
          '',
        ].join('\n'),
      );
    } finally {
      rmSync(dir, { recursive: true });
    }
  });
});
