import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { RUNTIME } from '../defaults.ts';
import { Certificate, certificateOf } from './certificate.ts';
import { CertificatePool } from './pool.ts';
import { type CertificateUse, missingPurpose, verify } from './verify.ts';

/** Each signed by itself with ECDSA P-256, good for a hundred years, with an empty subject; this one is for clients. */
const NAMELESS = `
  MIIBJjCBzaADAgECAgEBMAoGCCqGSM49BAMCMAAwIBcNMjYxMTIyMTU0NjU5WhgPMjEyNjEwMjkxNTQ2NTlaMAAwWTATBgcqhkjOPQIBBggqhkjOPQMBBw
  NCAAR/U8bcjBcpGNhdG2dS/3CkDuPyk5zRzIR+UkGP/bK+Sg31jmpZSrJyv+yuoVo0VXsjSV/E7lVHiOTlNo5dc1ciozYwNDATBgNVHSUEDDAKBggrBgEF
  BQcDAjAdBgNVHQ4EFgQUjAsqfW/nhvDEoKiFp8kksLLrLR8wCgYIKoZIzj0EAwIDSAAwRQIhAP33QIEO8xQxnDBbz+vOzZHit/tOLkKjifjxSFxG+yKhAi
  AePIqVcs1vppQrCaCGlPh14Dlrp+QPO03TLkKXCHhhwA==
`;

/** For localhost and 127.0.0.1. */
const NAMED_BESIDE = `
  MIIBQzCB6aADAgECAgEBMAoGCCqGSM49BAMCMAAwIBcNMjYxMTIyMTU0NjU5WhgPMjEyNjEwMjkxNTQ2NTlaMAAwWTATBgcqhkjOPQIBBggqhkjOPQMBBw
  NCAAR/U8bcjBcpGNhdG2dS/3CkDuPyk5zRzIR+UkGP/bK+Sg31jmpZSrJyv+yuoVo0VXsjSV/E7lVHiOTlNo5dc1cio1IwUDATBgNVHSUEDDAKBggrBgEF
  BQcDATAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwHQYDVR0OBBYEFIwLKn1v54bwxKCohafJJLCy6y0fMAoGCCqGSM49BAMCA0kAMEYCIQCCRSXsGa
  S/4fH7NrdXKzOVP/6o2HnoAfxYXZ3YRdcVRQIhAIQDC0lTSWKXcciBVv7rMMlwUgAyh/LS2VCpPbGuf1Rg
`;

/** With anyExtendedKeyUsage. */
const ANY = `
  MIIBIjCByaADAgECAgEBMAoGCCqGSM49BAMCMAAwIBcNMjYxMTIyMTU0NjU5WhgPMjEyNjEwMjkxNTQ2NTlaMAAwWTATBgcqhkjOPQIBBggqhkjOPQMBBw
  NCAAR/U8bcjBcpGNhdG2dS/3CkDuPyk5zRzIR+UkGP/bK+Sg31jmpZSrJyv+yuoVo0VXsjSV/E7lVHiOTlNo5dc1ciozIwMDAPBgNVHSUECDAGBgRVHSUA
  MB0GA1UdDgQWBBSMCyp9b+eG8MSgqIWnySSwsustHzAKBggqhkjOPQQDAgNIADBFAiBNX2a8plajKMU4djkdjV1/WOzCMjCrU/q0GTFHQgYLXwIhAJyACM
  gqNrgvvLR/txKgnDFKrMtZ381zsyr5TFI8Yc5H
`;

/** ECDSA P-256, good for a hundred years, of `Example, Inc.` and named `a\b,O=c`. */
const COMMAS = `
  MIIBqjCCAVGgAwIBAgIUbGbalJDLXX+ozk5JUxAkX5YAXbkwCgYIKoZIzj0EAwIwKjEWMBQGA1UECgwNRXhhbXBsZSwgSW5jLjEQMA4GA1UEAwwHYVxi
  LE89YzAgFw0yNjExMjIwNTA4MDJaGA8yMTI2MTAyOTA1MDgwMlowKjEWMBQGA1UECgwNRXhhbXBsZSwgSW5jLjEQMA4GA1UEAwwHYVxiLE89YzBZMBMG
  ByqGSM49AgEGCCqGSM49AwEHA0IABMdhAw86W2KVNIY4Vbc8NN5jZVMkc/w0gqwRgvWjdtDZ3FLmD5Ojj67NoAXq1Jyr9witNb4MSOOvWNypXsOlV8uj
  UzBRMB0GA1UdDgQWBBSWMb8833UI0V0PsrX4krMhaJVGHTAfBgNVHSMEGDAWgBSWMb8833UI0V0PsrX4krMhaJVGHTAPBgNVHRMBAf8EBTADAQH/MAoG
  CCqGSM49BAMCA0cAMEQCIFCaqwPhfTAKJz8ulUeysQx1/nRT7d1SbGwSD4F8A4sVAiB/Lfsv5OE6ipP2CXdym++uy5QTBqUipJrK4NNR0jJnHQ==
`;

const der = (base64: string) => Buffer.from(base64, 'base64');
const parsed = (base64: string) => certificateOf(der(base64));
const NOW = Date.parse('2030-01-01');

function fault(base64: string, use: CertificateUse, roots = new CertificatePool([]), sent: Certificate[] = []): string {
  try {
    verify({ leaf: parsed(base64), sent }, roots, { use, now: NOW });
    return '';
  } catch (error) {
    return (error as Error).message;
  }
}

test('a certificate without a subject is called by its first name, or said to have none', () => {
  assert.equal(parsed(NAMELESS).title, 'no subject, serial 01');
  assert.equal(parsed(NAMED_BESIDE).title, 'DNS:localhost, serial 01');
});

test("a name's fields are told apart from commas within them", () => {
  assert.equal(parsed(COMMAS).name, 'O=Example\\, Inc.,CN=a\\\\b\\,O=c');
  assert.equal(parsed(NAMELESS).name, undefined);
});

test('an authority without a name is refused in words', () => {
  assert.equal(
    fault(NAMELESS, 'client'),
    'it was issued by an authority without a name, which is not a trusted authority here',
  );
});

test('a certificate for any purpose is one for each, and one for another says what to ask for', () => {
  for (const use of ['client', 'server'] as const) assert.equal(missingPurpose(parsed(ANY), use), undefined);
  assert.equal(
    fault(NAMELESS, 'server'),
    'its extended key usage lacks serverAuth: issue it with extended key usage serverAuth',
  );
});

test('what is read agrees with what OpenSSL reads', () => {
  for (const each of [NAMELESS, NAMED_BESIDE, ANY]) {
    const [ours, theirs] = [parsed(each), new X509Certificate(der(each))];
    assert.equal(ours.validFrom, Date.parse(theirs.validFrom));
    assert.equal(ours.validTo, Date.parse(theirs.validTo));
    assert.deepEqual(ours.publicKey, theirs.publicKey.export({ type: 'spki', format: 'der' }));
    assert.equal(ours.isSignedBy(ours), true);
  }
});

test('a certificate is read once while it is known, whoever shows it', () => {
  assert.equal(parsed(ANY), parsed(ANY));
  const long = Buffer.concat([der(ANY), Buffer.alloc(5000)]);
  assert.throws(() => certificateOf(long), /something stands behind it/);
});

/** A certificate that anybody can make: its fields are set, and it verifies nothing. */
function forged(fields: Partial<Certificate>): Certificate {
  return Object.assign(new Certificate(der(ANY)), { isAuthority: true, version: 3, ...fields });
}

test('what a peer sends costs a bounded number of signatures', () => {
  for (const [key, most] of [
    [{ keyKind: 'ec' }, RUNTIME.chainSignatures],
    [{ keyKind: 'rsa', bits: 8192, exponent: 65_537n }, RUNTIME.chainSignatures / 4],
    [{ keyKind: 'rsa', bits: 4096, exponent: 2n ** 31n - 1n }, RUNTIME.chainSignatures / 3],
  ] as const) {
    let verified = 0;
    // All have the leaf's issuer's name, and each other's.
    const sent = Array.from({ length: 16 }, (_, index) => {
      const one = forged({ ...key, purposes: [], raw: Buffer.of(index), isSameAs: (other) => other === one });
      return Object.assign(one, { isSignedBy: () => ++verified > 0 });
    });
    const leaf = Object.assign(new Certificate(der(ANY)), { isSignedBy: () => ++verified > 0 });
    assert.throws(
      () => verify({ leaf, sent }, new CertificatePool([]), { use: 'client', now: NOW }),
      /more than 100 certificates have its issuer's name/,
    );
    assert.ok(verified > 0 && verified <= most, `${verified} signatures`);
  }
});

test('a key that costs too much to verify with is refused before anything is verified', () => {
  for (const [bits, exponent, why] of [
    [16_384, 65_537n, /its RSA key has 16384 bits: 2048 to 8192 are allowed/],
    [1024, 65_537n, /its RSA key has 1024 bits: 2048 to 8192 are allowed/],
    [512, 65_537n, /its RSA key has 512 bits/],
    [3072, 2n ** 1000n, /its RSA key has an exponent of more than 31 bits/],
  ] as const) {
    const heavy = forged({ keyKind: 'rsa', bits, exponent, isSignedBy: () => assert.fail('it was verified') });
    assert.match(fault(ANY, 'client', new CertificatePool([]), [heavy]), why);
    const roots = new CertificatePool([heavy]);
    assert.throws(() => verify({ leaf: heavy, sent: [] }, roots, { use: 'client', now: NOW }), why);
  }
});
