import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import type { TLSSocket } from 'node:tls';
import { peerSubject } from './certificate.ts';

/** ECDSA P-256, good for a hundred years, of `Example, Inc.` and named `a\b,O=c`. */
const COMMAS = `
  MIIBqjCCAVGgAwIBAgIUbGbalJDLXX+ozk5JUxAkX5YAXbkwCgYIKoZIzj0EAwIwKjEWMBQGA1UECgwNRXhhbXBsZSwgSW5jLjEQMA4GA1UEAwwHYVxi
  LE89YzAgFw0yNjExMjIwNTA4MDJaGA8yMTI2MTAyOTA1MDgwMlowKjEWMBQGA1UECgwNRXhhbXBsZSwgSW5jLjEQMA4GA1UEAwwHYVxiLE89YzBZMBMG
  ByqGSM49AgEGCCqGSM49AwEHA0IABMdhAw86W2KVNIY4Vbc8NN5jZVMkc/w0gqwRgvWjdtDZ3FLmD5Ojj67NoAXq1Jyr9witNb4MSOOvWNypXsOlV8uj
  UzBRMB0GA1UdDgQWBBSWMb8833UI0V0PsrX4krMhaJVGHTAfBgNVHSMEGDAWgBSWMb8833UI0V0PsrX4krMhaJVGHTAPBgNVHRMBAf8EBTADAQH/MAoG
  CCqGSM49BAMCA0cAMEQCIFCaqwPhfTAKJz8ulUeysQx1/nRT7d1SbGwSD4F8A4sVAiB/Lfsv5OE6ipP2CXdym++uy5QTBqUipJrK4NNR0jJnHQ==
`;

function subjectOf(certificate: Pick<X509Certificate, 'subject'> | undefined): string | undefined {
  return peerSubject({ getPeerX509Certificate: () => certificate } as TLSSocket);
}

test("a subject's fields are told apart from commas within them, whatever the runtime escapes", () => {
  const certificate = new X509Certificate(Buffer.from(COMMAS, 'base64'));
  const expected = 'O=Example\\, Inc.,CN=a\\\\b\\,O=c';
  assert.equal(subjectOf(certificate), expected);
  assert.equal(subjectOf({ subject: 'O=Example\\, Inc.\nCN=a\\\\b\\,O=c' }), expected);
  assert.equal(subjectOf({ subject: 'O=Example, Inc.\nCN=a\\b,O=c' }), expected);
  assert.equal(subjectOf({ subject: 'O=ends with \\\nCN=b' }), 'O=ends with \\\\,CN=b');
  assert.equal(subjectOf({ subject: 'O=a\\+b\\0A\nCN=c + OU=d' }), 'O=a\\+b\\0A,CN=c + OU=d');
});

test('who shows no certificate, or one without a subject, has none', () => {
  assert.equal(subjectOf(undefined), undefined);
  assert.equal(subjectOf({ subject: '' }), undefined);
});
