import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { nameOf } from '@isthmus/tunnel';
import { describe, faultOf } from './certificate.ts';

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

const parsed = (base64: string) => new X509Certificate(Buffer.from(base64, 'base64'));

test('a certificate without a subject is called by its first name, or said to have none', () => {
  assert.match(describe(parsed(NAMELESS)), /^no subject, serial 0?1$/);
  assert.match(describe(parsed(NAMED_BESIDE)), /^DNS:localhost, serial 0?1$/);
});

test('an authority without a name is refused in words', () => {
  assert.equal(
    faultOf(parsed(NAMELESS), 'DEPTH_ZERO_SELF_SIGNED_CERT', { use: 'client' }),
    'it was issued by an authority without a name, which is not a trusted authority here',
  );
});

test('a name that cannot be read, or printed, does not reach a log as it is', () => {
  const unreadable = {
    get subject(): string {
      throw new Error('illegal characters');
    },
  };
  assert.equal(nameOf(unreadable), 'a name that cannot be read');
  assert.equal(nameOf({ subject: 'CN=a\u001b[2J\u202eb' }), 'CN=a\\u{1b}[2J\\u{202e}b');
});

test('a certificate for any purpose is one for each, and one for another says what to ask for', () => {
  for (const use of ['client', 'server'] as const) assert.equal(faultOf(parsed(ANY), undefined, { use }), undefined);
  assert.equal(
    faultOf(parsed(NAMELESS), undefined, { use: 'server' }),
    'its extended key usage lacks serverAuth: issue it with extended key usage serverAuth',
  );
});
