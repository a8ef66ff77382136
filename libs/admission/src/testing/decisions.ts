import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { NotAuthorised, principalText } from '@isthmus/tunnel';
import { authorityOf, type CallerEvidence, type Evidence } from '../authority.ts';
import { TrustSet } from '../certificates/trust-set.ts';
import { Grants } from '../grants.ts';
import { tenantsOf } from './sources.ts';
import { DAY, type Issue, shownBy } from './world.ts';

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
const authority = authorityOf({ tenants, grants, bundles: () => bundle });

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
