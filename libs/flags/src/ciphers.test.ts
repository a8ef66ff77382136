import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSecureContext } from 'node:tls';
import { cipherSuiteNames, isCipherSuite, opensslCiphers, tlsVersion } from './ciphers.ts';

test("each of Go's cipher suites has a name that node:tls accepts", () => {
  assert.equal(cipherSuiteNames().length, 13);
  for (const name of cipherSuiteNames()) {
    const ciphers = opensslCiphers([name]);
    if (name.includes('_WITH_')) createSecureContext({ ciphers: ciphers as string });
    else assert.equal(ciphers, undefined, name);
  }
  assert.ok(!isCipherSuite('constructor'));
});

test('choosing TLS 1.2 suites leaves those of TLS 1.3 unchanged', () => {
  assert.equal(
    opensslCiphers(['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256']),
    'TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-RSA-AES128-GCM-SHA256',
  );
  assert.equal(opensslCiphers([]), undefined);
});

test("Go's names of TLS versions map to those of node:tls", () => {
  assert.deepEqual(['', 'VersionTLS10', 'VersionTLS11', 'VersionTLS12', 'VersionTLS13', 'TLSv1.2'].map(tlsVersion), [
    'TLSv1.2',
    'TLSv1',
    'TLSv1.1',
    'TLSv1.2',
    'TLSv1.3',
    undefined,
  ]);
});
