import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { withIssuers } from './issuers.ts';

function pem(base64: string): string {
  const lines = base64.replaceAll(/\s/g, '').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/** ECDSA P-256, good for a hundred years: `hub` issued by `inter`, issued by `root`; and another `root`, with another key. */
const ROOT = pem(`
  MIIBgjCCASigAwIBAgIUeSKT9bP+KhBBAzlraKYBXvRJrCcwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAgFw0yNjExMjIwNDI4MjNaGA
  8yMTI2MTAyOTA0MjgyM1owDzENMAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBxWt4o6cEE652hY/JUlP+/Bw7yqsEHX
  vzb0SiLBo9cIA8mi+ZwlGQVmZ1T8M4HPGwEbGtGVNis41T5GzQxfXv2jYDBeMB0GA1UdDgQWBBTYFW0hhzemXTP+icx2oPupk6BphDAfBgNVHS
  MEGDAWgBTYFW0hhzemXTP+icx2oPupk6BphDAPBgNVHRMBAf8EBTADAQH/MAsGA1UdDwQEAwICBDAKBggqhkjOPQQDAgNIADBFAiBhSPCXnaK4
  ypD5oMR7gM+eItMjjWqrUppXxFYuphwmWAIhAM10q8Qz9rtcMbVJZEmIdmRrjJI1dJTdZaGd5tVmqnWx
`);
const TWIN = pem(`
  MIIBgjCCASigAwIBAgIUSOX0gavHYck2Q+hz7oGgJW/Q/F4wCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAgFw0yNjExMjIwNDI4MjNaGA
  8yMTI2MTAyOTA0MjgyM1owDzENMAsGA1UEAwwEcm9vdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFdkqXWt8PSFnUPkzWtCgsH/LXVVhQ3D
  PgYHT9AYVyJLTmhTwkwFabXSvlfdv6JVeseayE8mfv5pcGO62Lg87tijYDBeMB0GA1UdDgQWBBTRgk+kJek1mx9CCb5ZhRA9Fmcm7jAfBgNVHS
  MEGDAWgBTRgk+kJek1mx9CCb5ZhRA9Fmcm7jAPBgNVHRMBAf8EBTADAQH/MAsGA1UdDwQEAwICBDAKBggqhkjOPQQDAgNIADBFAiAop879VoFh
  bUxFJwePDcmrSThHNuWFZ1AXuhj90TQNOAIhAObQy/cEytMdZVzyFkIzhkqGB+3Y63SINnSqp9rr3k5V
`);
const INTERMEDIATE = pem(`
  MIIBQjCB6aADAgECAhQ5Da12YlHvZgKD+coTNVFqsF+UijAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARyb290MCAXDTI2MTEyMjA0MjgyNFoYDz
  IxMjYxMDI5MDQyODI0WjAQMQ4wDAYDVQQDDAVpbnRlcjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABHSAp9ypfj6tvsjCvaBor5cTyKYoxc6e
  POWf8wfZnnkxMraob8oxVvlEKE9jIjbgSAAy+jH9+TfSWBaGkVLOxQWjIDAeMA8GA1UdEwEB/wQFMAMBAf8wCwYDVR0PBAQDAgIEMAoGCCqGSM
  49BAMCA0gAMEUCIQCdQ00g6va2HveowSriEIPkQ0a1rYsOnoG/0LXJ/jXaHAIgCgBFYBJOa/jKK46Aasqhrqeoo+AvmC3QDyUoJUWdrck=
`);
const LEAF = pem(`
  MIIBVzCB/6ADAgECAhQA6/el4lYVAeKyIwht1z5MKonKQTAKBggqhkjOPQQDAjAQMQ4wDAYDVQQDDAVpbnRlcjAgFw0yNjExMjIwNDI4MjRaGA
  8yMTI2MTAyOTA0MjgyNFowDjEMMAoGA1UEAwwDaHViMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE2bdTrP6UfrVDOU53xnljCvecrGjDuUTG
  2icH5/PrP2cCjKYFongcjN2wINECOS19JAKldoXcqPtszHHpCaL79qM3MDUwFAYDVR0RBA0wC4IJbG9jYWxob3N0MB0GA1UdDgQWBBTKkJ+470
  O2I+g5GJPSa34LVQDa5TAKBggqhkjOPQQDAgNHADBEAiANt6MM/Ydfb/IMalPlTPssNYki1OwL0nacSDxRKG/5wQIgHbQ+sLcM/B17+2M/1bSQ
  ypQSP7lweOQPjCd+Xnaq7AQ=
`);

const NONE = pem('bm90IGEgY2VydGlmaWNhdGU=');

/** What is shown by a server with these files. */
function shown(cert: string, ...ca: string[]): string[] {
  const pems = withIssuers({ cert: Buffer.from(cert), ca: Buffer.from(ca.join('')) })?.toString() ?? '';
  return pems.split(/(?=-----BEGIN)/).map((one) => new X509Certificate(one).fingerprint256);
}

const prints = (...certificates: string[]) => certificates.map((one) => new X509Certificate(one).fingerprint256);

test('behind a certificate alone in its file come its issuers, up to the one that issued itself', () => {
  assert.deepEqual(shown(LEAF, ROOT, INTERMEDIATE), prints(LEAF, INTERMEDIATE, ROOT));
  assert.deepEqual(shown(INTERMEDIATE, ROOT), prints(INTERMEDIATE, ROOT));
});

test('of two authorities with one name the one whose key signed is shown', () => {
  assert.deepEqual(shown(LEAF, TWIN, INTERMEDIATE, ROOT), prints(LEAF, INTERMEDIATE, ROOT));
  assert.deepEqual(shown(LEAF, TWIN, INTERMEDIATE), prints(LEAF, INTERMEDIATE));
});

test('a chain that is in the file, a certificate of nobody known and one that issued itself are shown as they are', () => {
  assert.deepEqual(shown(LEAF + INTERMEDIATE, ROOT, INTERMEDIATE), prints(LEAF, INTERMEDIATE));
  assert.deepEqual(shown(LEAF, ROOT), prints(LEAF));
  assert.deepEqual(shown(ROOT, ROOT), prints(ROOT));
  assert.equal(withIssuers({ cert: Buffer.from(LEAF) })?.toString(), LEAF);
  assert.equal(withIssuers({}), undefined);
});

test('an authority that cannot be read changes nothing', () => {
  assert.deepEqual(shown(LEAF, INTERMEDIATE, NONE, ROOT), prints(LEAF));
});
