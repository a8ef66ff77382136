import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { type Certificate, CertificatePool } from '@isthmus/runtime';
import { visitorBy } from './visitor.ts';

const OPERATOR = 'spiffe://plane.example/tenant/acme/operator/alice';

const IDS: readonly (readonly [ids: readonly string[], is: string | RegExp])[] = [
  [[], 'the plane'],
  [['https://example.com/tenant/acme'], 'the plane'],
  [['spiffe://plane.example/ns/kube-system/sa/admin'], 'the plane'],
  [[OPERATOR], 'acme alice'],
  [[OPERATOR, 'spiffe://plane.example/ns/a/sa/b'], 'acme alice'],
  [[OPERATOR, 'spiffe://plane.example/tenant/beta/operator/alice'], /several SPIFFE IDs of tenants/],
  [[OPERATOR, OPERATOR], /several SPIFFE IDs of tenants/],
  [['spiffe://plane.example/tenant/acme/agent/edge-1'], /which is no operator/],
  [['spiffe://plane.example/tenant/acme/caller/api'], /which is no operator/],
  [['spiffe://plane.example/tenant/acme/operator/'], /which is no operator/],
  [['spiffe://plane.example/tenant/acme/operator/a/b'], /which is no operator/],
  [['spiffe://plane.example/tenant/ACME/operator/a'], /which is no operator/],
  [['SPIFFE://plane.example/Tenant/acme/operator/a'], /which is no operator/],
  [['spiffe://plane.example/tenant'], /which is no operator/],
  [['spiffe:///tenant/acme/operator/a'], /which is no operator/],
];

test('a certificate is of the plane or of one tenant, and one that contradicts itself is of nobody', async () => {
  const issuer = await CertificateAuthority.create('operators', 86_400_000);
  for (const [ids, is] of IDS) {
    const hosts = ids.map((value) => ({ type: 'url' as const, value }));
    const options = { commonName: 'alice', validMs: 1_000_000, uses: ['client'] as const };
    const { cert } = await issuer.issue({ ...options, ...(hosts.length > 0 && { hosts }) });
    const { operator, principal, fault } = visitorBy(CertificatePool.of(cert).all[0] as Certificate, '10.0.0.7:5000');
    assert.deepEqual([operator.identity, operator.remote], ['CN=alice', '10.0.0.7:5000']);
    const found = fault?.message ?? (principal ? `${operator.tenant} ${principal.name}` : 'the plane');
    if (typeof is === 'string') assert.equal(found, is, ids.join());
    else assert.match(found, is, ids.join());
  }
});
