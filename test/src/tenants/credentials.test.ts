import assert from 'node:assert/strict';
import { createPublicKey, type JsonWebKey, verify, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { readTenantFile } from '@isthmus/admission';
import { scoped } from '../harness/index.ts';
import { spiffe } from './tenant-trust.ts';
import { TenantsDirectory } from './tenants-directory.ts';
import { TokenIssuer } from './token-issuer.ts';

function certificate(path: string): X509Certificate {
  return new X509Certificate(readFileSync(path));
}

test(
  "a tenant's file is one that programs accept, and its CA signs what the tenant's peers show",
  scoped(async (scope) => {
    const directory = await TenantsDirectory.create(scope);
    const [acme, other] = [await directory.add('acme'), await directory.add('other', { limits: { agents: 3 } })];
    const texts = ['acme', 'other'].map((name) => readFileSync(`${directory.path}/${name}.yaml`, 'utf8'));
    const files = texts.map((text) => readTenantFile(text));
    assert.deepEqual(
      files.map((read) => ('file' in read ? read.file : read.problems)),
      [acme.file, { ...other.file, limits: { agents: 3 } }],
    );
    const [ours, theirs] = [certificate(acme.cluster.cert), certificate(other.cluster.cert)];
    for (const { cert } of [acme.server, await acme.agent('edge-1')]) {
      assert.ok(certificate(cert).verify(ours.publicKey));
      assert.ok(!certificate(cert).verify(theirs.publicKey));
    }
    const named = certificate((await acme.agent('edge-1', spiffe('tenant/acme/agent/edge-1'))).cert);
    assert.equal(named.subjectAltName, 'URI:spiffe://plane.example/tenant/acme/agent/edge-1');
  }),
);

test("an issuer's tokens are signed with the key that it publishes, until it rotates it", () => {
  const issuer = new TokenIssuer();
  const token = issuer.token('system:serviceaccount:kube-system:konnectivity-agent');
  const signed = () => {
    const [head = '', claims = '', signature = ''] = token.split('.');
    const [jwk] = (JSON.parse(issuer.jwks) as { keys: JsonWebKey[] }).keys;
    const key = createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' });
    const options = { key, dsaEncoding: 'ieee-p1363' } as const;
    return verify('sha256', Buffer.from(`${head}.${claims}`), options, Buffer.from(signature, 'base64url'));
  };
  assert.equal(signed(), true);
  issuer.rotate();
  assert.equal(signed(), false);
});
