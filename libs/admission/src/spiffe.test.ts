import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readSpiffeId } from './spiffe.ts';

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
