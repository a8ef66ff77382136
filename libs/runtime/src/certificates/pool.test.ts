import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { costsItsLength } from '../testing.ts';
import { CertificatePool, withIssuers } from './pool.ts';

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

/** An authority that was renewed with its key: the first ended a day later; and what it issued. */
const ENDED = pem(`
  MIIBhjCCASygAwIBAgIUCjWREAbhpI1qsac4iM7GA7IlyyMwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAeFw0yNjExMjIwNTA3MDhaFw0y
  NjExMjMwNTA3MDhaMBIxEDAOBgNVBAMMB3JlbmV3ZWQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAT+X1bO9RCC6Rav5MrdFJa22FgvRenXE1Bz
  g5mLjIEkSA3dQWtMYF5/k8OylziRstVKhBIm3AgP83Kkymm3O+two2MwYTAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwICBDAdBgNVHQ4E
  FgQUrHTDTjhqKm/FbxJqM3VTyzVBUb0wHwYDVR0jBBgwFoAUUbkOgnh5BoRGBofvB6CYTaxZg84wCgYIKoZIzj0EAwIDSAAwRQIgCn2DmiY+wgFw
  ib6/Dve/W3uKfsJZQyhftUsnK0KtlcsCIQCbzwbgCVHCDYGnsA8RO04w8CNOVdqmIAEOfz/NTa8SqQ==
`);
const RENEWED = pem(`
  MIIBiDCCAS6gAwIBAgIUCjWREAbhpI1qsac4iM7GA7IlyyQwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEcm9vdDAgFw0yNjExMjIwNTA3MDhaGA8y
  MTI2MTAyOTA1MDcwOFowEjEQMA4GA1UEAwwHcmVuZXdlZDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABP5fVs71EILpFq/kyt0UlrbYWC9F6dcT
  UHODmYuMgSRIDd1Ba0xgXn+Tw7KXOJGy1UqEEibcCA/zcqTKabc763CjYzBhMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgIEMB0GA1Ud
  DgQWBBSsdMNOOGoqb8VvEmozdVPLNUFRvTAfBgNVHSMEGDAWgBRRuQ6CeHkGhEYGh+8HoJhNrFmDzjAKBggqhkjOPQQDAgNIADBFAiEAzKv9+ABY
  Z3ewSiOPYr/4HMQobFtM/kbE0CyI7uxn2swCIDduP1kk9n81ZPmQ7trvmX6wN19eR/w5jGLvhKBXoXif
`);
const ISSUED = pem(`
  MIIBGzCBwwIUVOycW89BKx+A7xKxL7Zblj4o/m8wCgYIKoZIzj0EAwIwEjEQMA4GA1UEAwwHcmVuZXdlZDAgFw0yNjExMjIwNTA3MDhaGA8yMTI2
  MTAyOTA1MDcwOFowDjEMMAoGA1UEAwwDaHViMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE0kssRPI7oDQKgK5O3YeLqKO+Gz5N07aZkZL43VKS
  7x3gOV/ywOJbnJrE8tNEVeX7z/00meP7C6OZhaiHSjnWnDAKBggqhkjOPQQDAgNHADBEAiABvGDvB6jx2OoGn/dhHU7PhbOzaqxsGNoXepu1eLcZ
  HQIgJPaKkh5mPRhoixB4doaack2myKevdMiw2uSoftJGbp8=
`);

/** Issued by themselves: with an RSA-PSS key of 1,024 bits, and one of Ed448. */
const SMALL_PSS = pem(`
  MIICYDCCAZWgAwIBAgIUS+WCLjktkZvhb7UmqIvYPe0JErMwQQYJKoZIhvcNAQEKMDSgDzANBglghkgBZQMEAgEFAKEcMBoGCSqGSIb3DQEBCDANBglg
  hkgBZQMEAgEFAKIDAgFeMA4xDDAKBgNVBAMMA3BzczAgFw0yNjExMjkwNjUwNTVaGA8yMTI2MTEwNTA2NTA1NVowDjEMMAoGA1UEAwwDcHNzMIGdMAsG
  CSqGSIb3DQEBCgOBjQAwgYkCgYEA0OdQnk1ci8HKz/GvQtSGSWuJHCWoQrOYjZYUkbPZEHoQ2MQg/0qVWCKcmo4gbUQNkWkgPPu9qYuT2BKp6b5iA77Q
  UsZFJBZ97HsmlOcwoy+2k3k8hS3tmZbWC7EysvwUMxVb2VTaUTmXhQgFH3twfj8nol38IyAICa5+WxgdyRcCAwEAAaNTMFEwHQYDVR0OBBYEFImNALpt
  VPM2ABQr3VB1qWeOXKNzMB8GA1UdIwQYMBaAFImNALptVPM2ABQr3VB1qWeOXKNzMA8GA1UdEwEB/wQFMAMBAf8wQQYJKoZIhvcNAQEKMDSgDzANBglg
  hkgBZQMEAgEFAKEcMBoGCSqGSIb3DQEBCDANBglghkgBZQMEAgEFAKIDAgFeA4GBAI5YKHMe9uAsQoDqQJekou5zSfviPtnfiIR8ZeCb/6CL+3JHWcTg
  YW5sTzplQOWJ+rU+JogZFyKtsF4Qqh/KkdrBmzE2Nbaq+VO03PsPiaWw9VyiXYVhluZYvtxC4iNSu3vhaHgjEPH9dF6cKpwlF3PpPglUW9xGmK80omZM
  QWRK
`);
const ED448 = pem(`
  MIIBgjCCAQKgAwIBAgIUcp7pKYcVnyQzT/K5YaKaNaO7a60wBQYDK2VxMBAxDjAMBgNVBAMMBWVkNDQ4MCAXDTI2MTEyOTA2NTA1NVoYDzIxMjYxMTA1
  MDY1MDU1WjAQMQ4wDAYDVQQDDAVlZDQ0ODBDMAUGAytlcQM6AAxZpEwEfUPqV6YGcVG9X/WXYJWo9uitzmfZmWFEmworjbEvChnFAYyWF6F0Idb+Djn1
  Hr3Rp/L5AKNTMFEwHQYDVR0OBBYEFKFT+TiWcwK+L+AD5/DbWzxRuyD2MB8GA1UdIwQYMBaAFKFT+TiWcwK+L+AD5/DbWzxRuyD2MA8GA1UdEwEB/wQF
  MAMBAf8wBQYDK2VxA3MAiFQ5ZJRixHAA3VshalWZ9Y3pQy5PbBCwJWMxtK2pD9uBgLK+VuupyRp9rzy8SPrCugh4mMD6rmIAey6v9dOB+6XpXaKHwgqt
  p1kIfu9MwTdXHhZU7XFr52I5V2snkt/ygLv4vJRaqRK4PTB4UG8hLA0A
`);

const PRIVATE = '-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n';
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

test('of an authority that was renewed the certificate is shown that ends last', () => {
  assert.deepEqual(shown(ISSUED, ENDED, RENEWED), prints(ISSUED, RENEWED));
  assert.deepEqual(shown(ISSUED, RENEWED, ENDED), prints(ISSUED, RENEWED));
});

test('a chain that is in the file, a certificate of nobody known and one that issued itself are shown as they are', () => {
  assert.deepEqual(shown(LEAF + INTERMEDIATE, ROOT, INTERMEDIATE), prints(LEAF, INTERMEDIATE));
  assert.deepEqual(shown(LEAF, ROOT), prints(LEAF));
  assert.deepEqual(shown(ROOT, ROOT), prints(ROOT));
  assert.equal(withIssuers({ cert: Buffer.from(LEAF) })?.toString(), LEAF);
  assert.equal(withIssuers({}), undefined);
});

/** What is read of a bundle: which certificates, and what is said of the other blocks. */
function read(pem: Buffer | string) {
  const { all, skipped } = CertificatePool.of(pem);
  return { all: all.map(({ name }) => name), skipped };
}

const lines = (text: string, line: (line: string, index: number) => string) => text.split('\n').map(line).join('\n');
const COMMENTED = lines(TWIN, (line, index) => (index === 0 ? `# ${line}` : line));

test('a bundle is read as people have it: behind a byte order mark, blanks, and with any line ends', () => {
  const both = { all: ['CN=root', 'CN=inter'], skipped: [] };
  const bundle = ROOT + INTERMEDIATE;
  for (const each of [
    bundle,
    `\ufeff${bundle}`,
    Buffer.from(`\ufeff${bundle}`),
    Buffer.from(`\ufeff${ROOT}\ufeff${INTERMEDIATE}`),
    bundle.replaceAll('\n', '\r\n'),
    bundle.replaceAll('\n', '\r'),
    bundle.replaceAll('\n', '\r\r\n'),
    lines(bundle, (line) => `  \t${line} \t`),
    `subject=CN = root\n${ROOT}\nissuer=CN = root\n${INTERMEDIATE}`,
    bundle.trimEnd(),
    ROOT + PRIVATE + INTERMEDIATE,
  ])
    assert.deepEqual(read(each), both);
  for (const each of [`\ufeff${LEAF}`, lines(LEAF, (line) => ` ${line}`), LEAF.replaceAll('\n', '\r\n')])
    assert.equal(withIssuers({ cert: each }), LEAF, 'OpenSSL gets what was read');
});

test('a block that does not begin at the start of a line is none, and text around blocks is nothing', () => {
  assert.deepEqual(read(COMMENTED + ROOT), { all: ['CN=root'], skipped: [] });
  assert.deepEqual(read(ROOT + COMMENTED), { all: ['CN=root'], skipped: [] });
  assert.deepEqual(read(`${lines(TWIN, (line) => `# ${line}`)}\n${ROOT}`), { all: ['CN=root'], skipped: [] });
  assert.deepEqual(read('nothing'), { all: [], skipped: [] });
});

const damaged = (which: string) => `certificate ${which}: its PEM block is damaged, or has no end`;

test('a block that is damaged or has no end is skipped and named, and no other with it', () => {
  const cut = TWIN.slice(0, 300);
  for (const bad of [
    `${cut}\n`,
    TWIN.replace('MII', 'M!!'),
    TWIN.replace('MII', 'MI'),
    TWIN.replace('-----END CERTIFICATE-----', '-----END X509 CRL-----'),
    TWIN.replace('-----END CERTIFICATE-----', ' and -----END CERTIFICATE-----'),
    TWIN.replace('-----END CERTIFICATE-----', '-----END CERTIFICATE----- and more'),
    TWIN.replace('CERTIFICATE-----\n', 'CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\n\n'),
    TWIN.replace('CERTIFICATE-----\n', 'CERTIFICATE-----'),
  ]) {
    assert.deepEqual(read(bad + ROOT), { all: ['CN=root'], skipped: [damaged('1 of 2')] }, bad);
    assert.deepEqual(read(ROOT + bad), { all: ['CN=root'], skipped: [damaged('2 of 2')] }, bad);
  }
  assert.deepEqual(read(cut), { all: [], skipped: [damaged('1 of 1')] });
});

test('a certificate that is malformed refuses the bundle, by its place', () => {
  for (const [bad, why] of [
    [NONE, /^certificate 2 of 3 is malformed: /],
    [pem(''), /^certificate 2 of 3 is malformed: malformed DER$/],
    [pem(`${new X509Certificate(TWIN).raw.toString('base64')}`.replace('MIIB', 'MIIC')), /^certificate 2 of 3 is malf/],
    [
      pem(Buffer.concat([new X509Certificate(TWIN).raw, Buffer.alloc(2)]).toString('base64')),
      /something stands behind/,
    ],
  ] as const)
    assert.throws(() => CertificatePool.of(ROOT + bad + INTERMEDIATE), { message: why });
  assert.throws(() => withIssuers({ cert: LEAF, ca: INTERMEDIATE + NONE + ROOT }), /certificate 2 of 3 is malformed/);
  assert.throws(() => withIssuers({ cert: LEAF + TWIN.slice(0, 300) }), /certificate 2 of 2: its PEM block is damaged/);
  assert.throws(() => withIssuers({ cert: 'nothing' }), /there is no certificate/);
});

test('a key that nobody takes in TLS is refused by its size or kind in what a program shows', () => {
  const size = 'its RSA key has 1024 bits: 2048 to 8192 are allowed';
  const kind =
    /^certificate 1 of \d \(CN=ed448\): its key is of a kind .*: RSA, ECDSA on P-224 to P-521 and Ed25519 are allowed$/;
  assert.throws(() => withIssuers({ cert: SMALL_PSS }), { message: `certificate 1 of 1 (CN=pss): ${size}` });
  assert.throws(() => withIssuers({ cert: LEAF + SMALL_PSS }), { message: `certificate 2 of 2 (CN=pss): ${size}` });
  assert.throws(() => withIssuers({ cert: ED448 }), { message: kind });
  assert.throws(() => withIssuers({ cert: ED448 + ROOT }), { message: kind });
  assert.deepEqual(read(SMALL_PSS + ROOT), { all: ['CN=root'], skipped: [`certificate 1 of 2 (CN=pss): ${size}`] });
  assert.deepEqual(read(ED448 + ROOT), { all: ['CN=ed448', 'CN=root'], skipped: [] }, 'as Go');
  const unread = new X509Certificate(SMALL_PSS).raw;
  unread[unread.indexOf('30818902818100', 0, 'hex')] = 0x31;
  assert.deepEqual(read(pem(unread.toString('base64')) + ROOT), { all: ['CN=pss', 'CN=root'], skipped: [] }, 'as Go');
});

test('what is no block takes no longer to read than a block', () => {
  const ends = '\n-----END CERTIFICATE-----'.repeat(40_000);
  const begins = '-----BEGIN CERTIFICATE-----\n'.repeat(40_000);
  costsItsLength(() => assert.deepEqual(read(ends), { all: [], skipped: [] }));
  for (const bad of [begins, begins + ends.replace('CERTIFICATE', 'X509 CRL')])
    costsItsLength(() => assert.deepEqual(read(bad).skipped.slice(9), [damaged('10 of 40000'), '39990 more']));
});

test('blanks and carriage returns take no longer to read than other characters', () => {
  const [blanks, returns] = [' '.repeat(1 << 20), '\r'.repeat(1 << 20)];
  const none = { all: [], skipped: [] };
  for (const text of [blanks, returns, `${returns}x`, `x${blanks}x`, `-----BEGIN CERTIFICATE${blanks}x-----\nAAAA\n`])
    costsItsLength(() => assert.deepEqual(read(text), none));
  const behind = `-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----${blanks}x`;
  costsItsLength(() => assert.deepEqual(read(behind), { all: [], skipped: [damaged('1 of 1')] }));
  const root = returns + ROOT.replaceAll('\n', '\r\r\n');
  costsItsLength(() => assert.deepEqual(read(root), { all: ['CN=root'], skipped: [] }));
});

test('a certificate of a bundle keeps nothing but its own bytes', () => {
  const { all } = CertificatePool.of(ROOT + INTERMEDIATE + LEAF);
  assert.deepEqual(
    all.map(({ raw }) => raw.toString('base64')),
    [ROOT, INTERMEDIATE, LEAF].map((each) => new X509Certificate(each).raw.toString('base64')),
  );
  for (const { raw } of all) assert.equal(raw.buffer.byteLength, raw.length);
});
