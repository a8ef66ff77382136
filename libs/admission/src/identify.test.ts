import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { NotAuthorised, principalText } from '@isthmus/tunnel';
import { TrustSet } from './certificate-trust.ts';
import { Grants } from './grants.ts';
import { type CallerEvidence, type Evidence, identifyBy } from './identify.ts';
import { DAY, type Issue, shownBy, tenantsOf } from './testing.ts';

const names = ['acme', 'acmeCallers', 'beta', 'twins', 'program', 'nobody', 'servers'] as const;
type Name = (typeof names)[number];

export const authorities = Object.fromEntries(
  // As of kubeadm's clusters, all have one name.
  await Promise.all(names.map(async (name) => [name, await CertificateAuthority.create('kubernetes', DAY)])),
) as Record<Name, CertificateAuthority>;

const server = await authorities.servers.issue({ commonName: 'x', validMs: DAY, uses: ['server'] });
const files = {
  ...Object.fromEntries(names.map((name) => [name, authorities[name].cert])),
  ...{ 'server.crt': server.cert, 'server.key': server.key },
};

const served = (...serverNames: string[]) =>
  `server: {serverNames: ${JSON.stringify(serverNames)}, certificate: server.crt, key: server.key}`;

const twin = (name: string) =>
  `tenant: ${name}\n${served(`${name}.example`)}\nagents: [{certificates: {ca: twins, shared: true}, port: 9100}]`;

const TEXTS = {
  'acme.yaml': `
tenant: acme
${served('acme.example')}
agents: [{certificates: {ca: acme}}]
callers:
  - {certificates: {ca: acmeCallers, names: [kube-apiserver]}}
  - {unixSocket: /run/acme.sock, name: local}
  - {port: 9001}
deny: {agents: [thief]}`,
  'beta.yaml': `
tenant: beta
${served('*.beta.example')}
agents: [{certificates: {ca: beta}}, {certificates: {trustDomain: plane.example}}]
callers: [{certificates: {trustDomain: plane.example}}]`,
  'castor.yaml': twin('castor'),
  'pollux.yaml': twin('pollux').replace(', port: 9100', ''),
  'open.yaml': 'tenant: open\ncallers: [{port: 9003}, {unixSocket: /run/open.sock}]',
};

const tenants = await tenantsOf(TEXTS, files);
export const grants = new Grants({ tenant: (name) => tenants.get(name) });
export const bundle = new TrustSet(authorities.program.cert);
const authority = identifyBy({ tenants, grants, bundles: () => bundle });

type Shows = readonly [by: Name, commonName: string, issue?: Issue];

/** A peer, and who it is found to be. */
export interface Row {
  readonly what: string;
  readonly shows?: Shows;
  readonly evidence?: Evidence & Omit<CallerEvidence, keyof Evidence>;
  readonly claims?: string;
  /** The principal, or why there is none. */
  readonly is: string | RegExp;
  /** The rule that verifies or refuses. */
  readonly rule?: string;
}

export const spiffe = (path: string, domain = 'plane.example') => ({ uris: [`spiffe://${domain}/${path}`] });
export const SNI = { serverName: 'acme.example' };

/** Tries each row. */
export function decides(role: 'agent' | 'caller', rows: readonly Row[]): void {
  for (const { what, shows, evidence = {}, claims, is, rule } of rows) {
    test(`${role} ${what} ${typeof is === 'string' ? `is ${is}` : 'is refused'}`, async () => {
      const certificate = shows && (await shownBy(authorities[shows[0]], shows[1], shows[2]));
      const all = { ...evidence, ...(certificate && { certificate }) };
      const decide = async () => {
        if (role === 'caller') return authority.caller(all);
        const more = { source: '127.0.0.1', signal: AbortSignal.timeout(60_000) };
        return authority.agent({ ...all, ...more, ...(claims !== undefined && { claimedTenant: claims }) });
      };
      if (typeof is === 'string') {
        const { principal, tenant } = await decide();
        assert.equal(principalText(principal), is);
        assert.equal(tenant.name, principal.tenant);
        if (rule) assert.equal(principal.rule, rule);
        return;
      }
      await assert.rejects(decide, (error: Error) => {
        assert.ok(error instanceof NotAuthorised, String(error.stack));
        assert.match(error.message, is);
        if (rule) assert.equal(error.rule, rule);
        return true;
      });
    });
  }
}

decides('agent', [
  { what: 'by issuer', shows: ['acme', 'e1'], is: 'acme/agent/e1', rule: 'acme.yaml: agents[0].certificates' },
  { what: 'by issuer, of another tenant', shows: ['beta', 'e1'], is: 'beta/agent/e1' },
  { what: 'by SNI', shows: ['acme', 'e1'], evidence: SNI, is: 'acme/agent/e1' },
  {
    what: 'by SNI under a pattern',
    shows: ['beta', 'e1'],
    evidence: { serverName: 'x.Beta.example' },
    is: 'beta/agent/e1',
  },
  {
    what: 'by issuer, with SNI of no tenant',
    shows: ['acme', 'e1'],
    evidence: { serverName: 'plane.example' },
    is: 'acme/agent/e1',
  },
  { what: 'by an own port', shows: ['acme', 'e1'], evidence: { tenant: 'acme' }, is: 'acme/agent/e1' },
  {
    what: 'by SPIFFE ID',
    shows: ['program', '', spiffe('tenant/beta/agent/e7')],
    is: 'beta/agent/e7',
    rule: 'beta.yaml: agents[1].certificates',
  },
  {
    what: "by a SPIFFE ID of the tenant's own CA",
    shows: ['acme', 'x', spiffe('tenant/acme/agent/e7', 'any')],
    is: 'acme/agent/e7',
  },
  {
    what: 'by a common name beside a SPIFFE ID of another shape',
    shows: ['acme', 'e1', spiffe('ns/default')],
    is: 'acme/agent/e1',
  },
  {
    what: 'by a shared CA and SNI',
    shows: ['twins', 'e1'],
    evidence: { serverName: 'castor.example' },
    is: 'castor/agent/e1',
  },
  { what: 'that claims its own tenant', shows: ['acme', 'e1'], claims: 'acme', is: 'acme/agent/e1' },
  {
    what: 'of an earlier version, which claims default',
    shows: ['acme', 'e1'],
    claims: 'default',
    is: 'acme/agent/e1',
  },

  {
    what: 'of a CA of no tenant',
    shows: ['nobody', 'e1'],
    is: /issued by CN=kubernetes, which is not a trusted authority here$/,
  },
  {
    what: "of another tenant than SNI's",
    shows: ['beta', 'e1'],
    evidence: SNI,
    is: /not a trusted authority/,
    rule: 'acme.yaml: agents[0].certificates',
  },
  {
    what: "of another tenant than its port's",
    shows: ['beta', 'e1'],
    evidence: { tenant: 'acme' },
    is: /not a trusted authority/,
  },
  {
    what: "on a tenant's port with another tenant's SNI",
    shows: ['acme', 'e1'],
    evidence: { tenant: 'acme', serverName: 'a.beta.example' },
    is: /way in is of tenant acme, but the server name a\.beta\.example is of tenant beta/,
  },
  {
    what: 'of a shared CA without SNI',
    shows: ['twins', 'e1'],
    is: /2 tenants share the authority .*: connect with the tenant's server name/,
  },
  {
    what: 'that claims another tenant',
    shows: ['acme', 'e1'],
    claims: 'beta',
    is: /says that it is of tenant beta, but its credential is of tenant acme/,
    rule: 'acme.yaml: agents[0].certificates',
  },
  {
    what: 'with two SPIFFE IDs',
    shows: [
      'program',
      '',
      { uris: ['spiffe://plane.example/tenant/beta/agent/a', 'spiffe://plane.example/tenant/acme/agent/a'] },
    ],
    is: /it has 2 SPIFFE IDs/,
  },
  {
    what: 'with a SPIFFE ID that looks like two in a text',
    shows: [
      'program',
      '',
      { uris: ['spiffe://plane.example/tenant/beta/agent/a, URI:spiffe://plane.example/tenant/acme/agent/a'] },
    ],
    is: /no SPIFFE ID of the trust domain|not a trusted authority/,
  },
  {
    what: 'with a SPIFFE ID of a tenant that does not list the trust domain',
    shows: ['program', 'e1', spiffe('tenant/acme/agent/e1')],
    is: /not a trusted authority/,
  },
  {
    what: 'with a SPIFFE ID of another trust domain',
    shows: ['program', 'e1', spiffe('tenant/beta/agent/e1', 'other.example')],
    is: /not a trusted authority/,
  },
  {
    what: "with a SPIFFE ID by another tenant's CA",
    shows: ['acme', '', spiffe('tenant/beta/agent/e1')],
    is: /not a trusted authority/,
  },
  {
    what: "with the tenant's CA and another tenant's SPIFFE ID",
    shows: ['acme', '', spiffe('tenant/beta/agent/e1', 'any')],
    is: /its SPIFFE ID names the agent e1 of tenant beta/,
  },
  {
    what: "with a caller's SPIFFE ID",
    shows: ['program', '', spiffe('tenant/beta/caller/c')],
    is: /its SPIFFE ID names the caller c of tenant beta/,
  },
  { what: "with a caller's certificate", shows: ['acmeCallers', 'kube-apiserver'], is: /not a trusted authority/ },
  {
    what: 'without a name',
    shows: ['acme', ''],
    is: /no common name that can be used: issue it with one, the agent's name/,
  },
  { what: 'with a name that cannot be printed', shows: ['acme', 'e1\u202e'], is: /no common name that can be used/ },
  {
    what: 'on the list of what is denied',
    shows: ['acme', 'thief'],
    is: /agent thief of tenant acme is not authorised: it is on the list of what is denied/,
    rule: 'acme.yaml: deny.agents[0]',
  },
  {
    what: 'that expired an hour ago',
    shows: ['acme', 'e1', { validMs: -3_600_000, notBeforeMs: -7_200_000 }],
    is: /it expired at .*: renew it/,
  },
  {
    what: 'of the next hour',
    shows: ['acme', 'e1', { notBeforeMs: 3_600_000 }],
    is: /it is not valid before .*: is the clock right/,
  },
  { what: 'for servers', shows: ['acme', 'e1', { uses: ['server'] }], is: /lacks clientAuth/ },
  {
    what: 'at a tenant that lists no certificates of agents',
    shows: ['acme', 'e1'],
    evidence: { tenant: 'open' },
    is: /tenant open lists no certificates of agents/,
  },
  {
    what: 'that shows nothing',
    is: /the agent has not proven its tenant: it showed no client certificate and no token: see agents/,
  },
  {
    what: 'that shows nothing, with SNI of no tenant',
    evidence: { serverName: 'x.example' },
    is: /its server name x\.example is of no tenant/,
  },
  {
    what: 'that shows nothing on an own port',
    evidence: { tenant: 'castor' },
    is: /has not proven its tenant/,
    rule: 'castor.yaml: agents',
  },
  {
    what: 'on a port of a tenant that is gone',
    shows: ['acme', 'e1'],
    evidence: { tenant: 'gone' },
    is: /there is no tenant gone/,
  },
]);

test("an authority of one tenant below another's proves no other tenant, and no other role", async () => {
  const root = await CertificateAuthority.create('root', DAY);
  const [below, own] = [await root.subordinate('below', DAY), await root.subordinate('own', DAY)];
  const lower = await tenantsOf(
    {
      'a.yaml': 'tenant: a\nagents: [{certificates: {ca: a}}]\ncallers: [{certificates: {ca: lone}}]',
      'b.yaml': 'tenant: b\nagents: [{certificates: {ca: below}}]',
      'c.yaml': 'tenant: c\nagents: [{certificates: {ca: own}}]\ncallers: [{certificates: {ca: top}}]',
    },
    { a: root.cert, below: below.cert, own: own.cert, lone: authorities.acme.cert, top: authorities.beta.cert },
  );
  const judge = identifyBy({ tenants: lower, grants, bundles: () => bundle });
  const signal = new AbortController().signal;
  const ofB = { certificate: await shownBy(below, 'x', { sent: [below] }), source: '', signal };
  assert.equal((await judge.agent(ofB)).principal.tenant, 'b');
  await assert.rejects(judge.agent({ ...ofB, tenant: 'a' }), /issued by an authority of another tenant/);
});

decides('caller', [
  {
    what: 'by SNI',
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: SNI,
    is: 'acme/caller/kube-apiserver',
    rule: 'acme.yaml: callers[0].certificates',
  },
  { what: 'by issuer', shows: ['acmeCallers', 'kube-apiserver'], is: 'acme/caller/kube-apiserver' },
  {
    what: 'by SPIFFE ID',
    shows: ['program', '', spiffe('tenant/beta/caller/api')],
    is: 'beta/caller/api',
  },
  {
    what: "by its tenant's socket",
    evidence: { tenant: 'acme', unixSocket: '/run/acme.sock' },
    is: 'acme/caller/local',
    rule: 'acme.yaml: callers[1].unixSocket',
  },
  {
    what: "by its tenant's port",
    evidence: { tenant: 'open', port: 9003 },
    is: 'open/caller/port-9003',
    rule: 'open.yaml: callers[0].port',
  },
  {
    what: "by its tenant's port, and certificate",
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: { tenant: 'acme', port: 9001 },
    is: 'acme/caller/kube-apiserver',
  },

  {
    what: "by a port whose tenant lists callers' certificates",
    evidence: { tenant: 'acme', port: 9001 },
    is: /has not proven its tenant/,
    rule: 'acme.yaml: callers',
  },
  {
    what: 'with another name',
    shows: ['acmeCallers', 'kubelet'],
    is: /its name kubelet is not among the names allowed/,
    rule: 'acme.yaml: callers[0].certificates',
  },
  {
    what: "with an agent's certificate",
    shows: ['acme', 'kube-apiserver'],
    is: /not a trusted authority/,
  },
  {
    what: "with an agent's SPIFFE ID",
    shows: ['program', '', spiffe('tenant/beta/agent/e1')],
    is: /names the agent e1/,
  },
  {
    what: "of another tenant on a tenant's socket's SNI",
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: { serverName: 'x.beta.example' },
    is: /no SPIFFE ID|not a trusted authority/,
  },
  { what: 'by SNI alone', evidence: SNI, is: /has not proven its tenant/ },
  {
    what: 'that shows nothing',
    is: /the caller has not proven its tenant: it showed no client certificate: see callers/,
  },
  {
    what: 'on a socket that the file does not list',
    evidence: { tenant: 'acme', unixSocket: '/run/x.sock' },
    is: /has not proven/,
  },
]);
