import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { type Certificate, CertificatePool } from '@isthmus/runtime';
import { gatewayTenants, readSpiffeId } from './certificate-judge.ts';

test('a SPIFFE ID names trust domain, tenant, role and name', () => {
  assert.deepEqual(readSpiffeId('spiffe://plane.example/tenant/acme/agent/node-7'), {
    trustDomain: 'plane.example',
    tenant: 'acme',
    role: 'agent',
    name: 'node-7',
  });
  assert.equal(readSpiffeId('spiffe://plane.example/tenant/acme/caller/kube-apiserver')?.role, 'caller');
});

for (const uri of [
  'https://plane.example/tenant/acme/agent/a',
  'spiffe://Plane.example/tenant/acme/agent/a',
  'spiffe:///tenant/acme/agent/a',
  'spiffe://plane.example/tenant/acme/hub/a',
  'spiffe://plane.example/tenant/acme/agent/',
  'spiffe://plane.example/tenant/acme/agent/a/b',
  'spiffe://plane.example/tenant/../agent/a',
  'spiffe://plane.example/tenant/acme/agent/..',
  'spiffe://plane.example/tenant/acme/agent/a?x',
  'spiffe://plane.example:443/tenant/acme/agent/a',
  `spiffe://plane.example/tenant/acme/agent/${'a'.repeat(2048)}`,
]) {
  test(`${uri.slice(0, 60)} is not an ID of ours`, () => assert.equal(readSpiffeId(uri), undefined));
}

const DAY = 86_400_000;

async function tenantsOf(...uris: string[]): Promise<readonly string[] | undefined> {
  const authority = await CertificateAuthority.create('peers', DAY);
  const hosts = [
    { type: 'dns' as const, value: 'isthmus-gateway' },
    ...uris.map((value) => ({ type: 'url' as const, value })),
  ];
  const { cert } = await authority.issue({ commonName: 'gw', validMs: DAY, hosts, uses: ['client'] });
  const tenants = gatewayTenants(CertificatePool.of(cert).all[0] as Certificate);
  return tenants && [...tenants];
}

test('a gateway dials for the tenants that its certificate names, or for all if it names none', async () => {
  assert.equal(await tenantsOf(), undefined);
  assert.deepEqual(await tenantsOf('spiffe://example.org/tenant/a/gateway/gw-1'), ['a']);
  const both = ['spiffe://example.org/tenant/a/gateway/gw', 'spiffe://example.org/tenant/b/gateway/gw'];
  assert.deepEqual(await tenantsOf(...both), ['a', 'b']);
  assert.equal(await tenantsOf('spiffe://example.org/ns/plane/sa/gateway'), undefined, 'it speaks of no tenant');
});

test('a SPIFFE ID of another role, or one that cannot be read, grants nothing', async () => {
  for (const uri of [
    'spiffe://example.org/tenant/a/agent/gw',
    'spiffe://example.org/tenant/a/gateway/',
    'spiffe://example.org/tenant/a',
    'SPIFFE://Example.org/Tenant/a/gateway/gw',
    'spiffe://example.org//tenant/a/gateway/gw',
  ])
    assert.deepEqual(await tenantsOf(uri), [], uri);
});
