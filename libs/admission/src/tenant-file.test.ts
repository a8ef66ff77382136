import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Composer } from 'yaml';
import { ADMISSION } from './defaults.ts';
import { readTenantFile } from './tenant-file.ts';

const FULL = `
tenant: acme
server: {serverNames: [acme.plane.example], certificate: acme.crt, key: acme.key}
agents:
  - {certificates: {ca: acme-ca.crt}, port: 9132}
  - {tokens: {issuer: https://kubernetes.default.svc, audience: konnectivity, keys: jwks.json}}
  - {tokenReview: {kubeconfig: acme.conf, namespace: kube-system, serviceAccount: konnectivity-agent}}
claims: {agentId: prefixed, cidr: [10.0.0.0/8], host: ["*.acme.example"]}
callers:
  - {unixSocket: /run/isthmus/acme.sock}
  - {certificates: {ca: callers.crt, names: [kube-apiserver]}}
dial: {deny: [{cidr: 10.0.0.10/32}], allow: [{cidr: 10.0.0.0/8, ports: [443, 10250]}]}
limits: {agents: 500, bytesPerSecond: 200MB}
`;

/** 400 rules of 400 bytes. */
const RULES = `{host: x.example, callers: [${'c'.repeat(200)}, ${'d'.repeat(160)}]}, `.repeat(400);

function problemsOf(source: string): string[] {
  const read = readTenantFile(source);
  assert.ok('problems' in read, 'the file was taken');
  return read.problems.map(({ line, column, at, message }) => `${line}:${column} ${at}: ${message}`);
}

describe("a tenant's file", () => {
  it('has everything that a tenant can have', () => {
    const read = readTenantFile(FULL);
    assert.ok('file' in read, JSON.stringify(read));
    assert.equal(read.file.tenant, 'acme');
    assert.equal(read.file.agents?.length, 3);
    assert.deepEqual(read.file.dial?.allow, [{ cidr: '10.0.0.0/8', ports: [443, 10250] }]);
  });

  it('needs only a name', () => {
    const read = readTenantFile('tenant: a');
    assert.deepEqual('file' in read && read.file, { tenant: 'a' });
  });

  it('tells where a place is that something else finds wrong', () => {
    const read = readTenantFile(FULL);
    assert.ok('file' in read);
    assert.deepEqual(read.problem('agents[2].tokenReview.kubeconfig', 'no'), {
      ...{ line: 7, column: 32 },
      ...{ at: 'agents[2].tokenReview.kubeconfig', message: 'no' },
    });
  });

  const rows: [what: string, source: string, problem: RegExp][] = [
    ['is empty', '', /^1:1 : expected fields/],
    ['is a list', '- tenant: a', /^1:1 : expected fields/],
    ['has no name', 'limits: {agents: 1}', /tenant: tenant is missing/],
    ['has a name that no metric can have', 'tenant: "A B"', /^1:9 tenant: expected up to 63/],
    ['has an unknown field', 'tenant: a\nlimit: 1', /^2:1 limit: unknown field limit/],
    [
      'has a hash where an issuer belongs',
      'tenant: a\ncallers: [{tokens: [{name: ci, sha256: x}]}]',
      /callers\[0\]\.tokens\.0: expected the fields of an issuer: .* below passwords$/,
    ],
    [
      'has a token where its hash belongs',
      'tenant: a\ncallers: [{passwords: [isthmus_x]}]',
      /callers\[0\]\.passwords\[0\]: expected what isthmus tenants token prints$/,
    ],
    ['has an unknown field inside', 'tenant: a\nlimits:\n  tunnel: 1', /^3:3 limits\.tunnel: unknown field tunnel/],
    ['has a field twice', 'tenant: a\ntenant: b', /^2:1 : /],
    ['makes a set of fields', 'tenant: a\ndial: !!set {allow}', /^2:\d+ dial\.allow: expected a list/],
    ['makes a list of fields', 'tenant: a\ndeny: !!omap [agents: [x]]', /^2:\d+ deny\.0: unknown field 0/],
    [
      'has a limit of more bytes than there are numbers',
      `tenant: a\nlimits: {bytesQueued: ${'9'.repeat(30)}GiB}`,
      /2\^53/,
    ],
    ['has two documents', 'tenant: a\n---\ntenant: b', /document/],
    ['has an alias', 'tenant: &x a\nserver: *x', /aliases/],
    ['is not YAML', 'tenant: [a', /^1:/],
    ['has a wrong prefix', 'tenant: a\nclaims: {cidr: [10.0.0.0/8, 10.1/16]}', /^2:29 claims\.cidr\[1\]: "10\.1\/16"/],
    [
      'lacks a field',
      'tenant: a\nserver: {certificate: c, key: k}',
      /^2:9 server\.serverNames: serverNames is missing/,
    ],
    ['has two ways in one', 'tenant: a\ncallers: [{unixSocket: x, port: 1}]', /callers\[0\]: expected exactly one of/],
    [
      'has a limit of 0',
      'tenant: a\nlimits: {tunnels: 0}',
      /^2:19 limits\.tunnels: expected a whole number, 1 or more/,
    ],
    [
      'has no number of bytes',
      'tenant: a\nlimits: {bytesQueued: 1XB}',
      /^2:23 \S+: expected a number of bytes such as \S+ or \S+$/,
    ],
    ['has a rule without a condition', 'tenant: a\ndial: {deny: [{name: x}]}', /expected cidr, host or ports/],
    [
      'has a rule of an endless name',
      `tenant: a\ndial: {deny: [{name: ${'x'.repeat(265)}, ports: [1]}]}`,
      /264 characters/,
    ],
    ['has a rule of a name with line ends', 'tenant: a\ndial: {deny: [{name: "x\\ny", ports: [1]}]}', /can be printed/],
    [
      'has more rules than agents take',
      `tenant: a\ndial: {deny: [${RULES}]}`,
      /^2:7 dial: the rules have more than 131072 bytes/,
    ],
    ['is too large', `tenant: a\n#${'x'.repeat(ADMISSION.tenantFileBytes)}`, /more than 262144 bytes/],
  ];
  for (const [what, source, problem] of rows) {
    it(`that ${what} is refused, with the place`, () => assert.match(problemsOf(source).join('\n'), problem));
  }

  it('reports all its problems at once', () => {
    assert.equal(problemsOf('tenant: A\nagents: []\nlimits: {tunnels: 0, agents: x}').length, 4);
  });

  it('tells of the first of very many problems, and how many more there are', () => {
    const of = (source: string) => problemsOf(source).map((problem) => problem.replace(/^\d+:\d+ /, ''));
    const entries = of(`tenant: a\nagents: [${'{}, '.repeat(999)}{}]`);
    assert.equal(entries.length, ADMISSION.problemsOfFile + 1);
    assert.equal(entries.at(-1), `: and ${1000 - ADMISSION.problemsOfFile} more problems`);
    assert.equal(of(']'.repeat(10_000)).at(-1), `: and ${10_000 - ADMISSION.problemsOfFile} more problems`);
    assert.deepEqual(of(`tenant: a\nserver: ${'['.repeat(10_000)}`), [': it is nested too deep']);
  });

  it('is parsed once for all its problems that something else finds', (t) => {
    const source = `tenant: a\nagents: [${'{certificates: {ca: x}}, '.repeat(1000)}]`;
    const read = readTenantFile(source);
    assert.ok('file' in read);
    const parsing = t.mock.method(Composer.prototype, 'compose');
    for (let n = 0; n < 1000; n++) read.problem(`agents[${n}].certificates.ca`, 'no');
    assert.ok(parsing.mock.callCount() <= 1, `${parsing.mock.callCount()} times`);
  });
});
