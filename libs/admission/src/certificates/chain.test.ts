import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { CertificateAuthority, selfSigned } from '@isthmus/certificates';
import { DAY, shownBy } from '../testing/world.ts';
import { CertificateRejected, faultOfLeaf, type ShownCertificate, verifyChain } from './chain.ts';
import { readCertificate, type Trust, TrustSet } from './trust-set.ts';

const root = await CertificateAuthority.create('kubernetes', DAY);
const trust = new TrustSet(root.cert);

function accepted(shown: ShownCertificate, by = trust, now = Date.now()) {
  return verifyChain(shown, by, now);
}

function refused(shown: ShownCertificate, why: RegExp, by: Trust = trust, now = Date.now()): void {
  assert.throws(
    () => verifyChain(shown, by, now),
    (error: Error) => error instanceof CertificateRejected && why.test(error.message),
  );
}

test('a certificate is verified up to an authority of the bundle', async () => {
  const middle = await root.subordinate('middle', DAY);
  const low = await middle.subordinate('low', DAY / 2);
  assert.equal(accepted(await shownBy(root, 'a')).authorities.length, 1);
  const chain = accepted(await shownBy(low, 'a', { sent: [middle, low] }));
  assert.equal(chain.authorities.length, 3);
  assert.ok(chain.expires < Date.now() + DAY * 0.6, 'the chain ends with the first of its certificates');
  // The bundle may hold the authority in the middle alone.
  assert.equal(accepted(await shownBy(low, 'a', { sent: [low] }), new TrustSet(middle.cert)).authorities.length, 2);
  refused(await shownBy(low, 'a', { sent: [middle] }), /issued by CN=low, which is not a trusted authority/);
});

test('an authority of the same name with another key is another authority', async () => {
  const namesake = await CertificateAuthority.create('kubernetes', DAY);
  refused(await shownBy(namesake, 'a'), /not a trusted authority/);
  refused(await shownBy(namesake, 'a', { sent: [namesake] }), /not a trusted authority/);
  refused(await shownBy(await root.impostor(), 'a'), /not a trusted authority/);
});

test('what is no authority issues nothing', async () => {
  const { cert } = await root.issue({ commonName: 'agent', validMs: DAY });
  assert.throws(() => new TrustSet(cert), /certificate 1 in it \(agent\) is of no certificate authority/);
  const own = new X509Certificate((await selfSigned('a', ['client'])).cert);
  refused({ leaf: own, sent: [own] }, /not a trusted authority/);
});

test('a path is no longer than its authorities allow', async () => {
  const middle = await root.subordinate('middle', DAY, 0);
  const low = await middle.subordinate('low', DAY);
  accepted(await shownBy(middle, 'a', { sent: [middle] }));
  refused(await shownBy(low, 'a', { sent: [low, middle] }), /path length of 0 is exceeded/);
});

test('dates, purposes and clocks', async () => {
  const good = await shownBy(root, 'a');
  refused(good, /it expired at/, trust, Date.now() + 2 * DAY);
  refused(good, /it is not valid before .*: is the clock right\?/, trust, Date.now() - 3 * 3_600_000);
  refused(await shownBy(root, 'a', { uses: ['server'] }), /lacks clientAuth/);
  refused(await shownBy(root, 'a', { uses: [] }), /lacks clientAuth/);
  const short = await root.subordinate('short', 3_600_000);
  const shown = await shownBy(short, 'a', { sent: [short] });
  refused(shown, /CN=short: it expired at/, trust, Date.now() + 2 * 3_600_000);
});

test('what a peer sends costs a bounded number of signatures', async () => {
  const namesakes = await Promise.all(Array.from({ length: 30 }, () => CertificateAuthority.create('kubernetes', DAY)));
  const { all } = new TrustSet(namesakes.map(({ cert }) => cert).join('\n'));
  // As if neither side named its key.
  const many = { has: () => false, issuersOf: () => all };
  const { leaf } = await shownBy(root, 'a');
  const verify = leaf.verify.bind(leaf);
  let signatures = 0;
  Object.assign(leaf, {
    checkIssued: (other: X509Certificate) => other !== leaf,
    verify: (key: Parameters<typeof verify>[0]) => ++signatures && verify(key),
  });
  refused({ leaf, sent: [] }, /more than 24 authorities have its issuer's name/, many);
  assert.equal(signatures, 24);
  const sent = namesakes.map(({ cert }) => new X509Certificate(cert));
  signatures = 0;
  refused({ leaf, sent }, /not a trusted authority/, new TrustSet(sent[0]?.toString() ?? ''));
  assert.ok(signatures <= 9, `${signatures} signatures for what it sent`);
});

test('what a peer sends under the name and key of a trusted authority stands for nothing', async () => {
  const expiring = await CertificateAuthority.create('kubernetes', 1000);
  const later = Date.now() + 60_000;
  const shown = await shownBy(expiring, 'a');
  refused(shown, /expired/, new TrustSet(expiring.cert), later);
  const renewed = { ...shown, sent: [new X509Certificate((await expiring.renewed(DAY)).cert)] };
  refused(renewed, /expired/, new TrustSet(expiring.cert), later);
});

test('a key that costs too much to verify with is refused before anything is verified', async () => {
  const authority = await CertificateAuthority.create('one', DAY);
  const { leaf } = await shownBy(authority, 'a');
  for (const [modulusLength, publicExponent, fault] of [
    [16_384, 65_537n, /its RSA key has 16384 bits: 2048 to 8192 are allowed/],
    [3072, 2n ** 1000n, /its RSA key has an exponent of more than 32 bits/],
    [3072, 65_537n, undefined],
  ] as const) {
    const { validFrom, validTo, raw } = leaf;
    const publicKey = { asymmetricKeyDetails: { modulusLength, publicExponent } };
    const certificate = { validFrom, validTo, raw, publicKey } as unknown as X509Certificate;
    const found = faultOfLeaf(readCertificate(certificate), Date.now());
    if (fault) assert.match(found ?? '', fault);
    else assert.equal(found, undefined);
  }
});
