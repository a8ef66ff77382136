import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { CertificateAuthority, selfSigned } from '@isthmus/certificates';
import { CertificateRejected, type Presented, type Trust } from '@isthmus/runtime';
import { verifyChain } from './certificate-judge.ts';
import { TrustSet } from './certificate-trust.ts';
import { DAY, read, shownBy } from './testing.ts';

test("an authority's end and serial number are read as OpenSSL reads them, also beyond 2049", async () => {
  for (const life of [DAY, 40 * 365 * DAY]) {
    const { cert } = await CertificateAuthority.create('kubernetes', life);
    const certificate = new X509Certificate(cert);
    const [authority] = new TrustSet(cert).all;
    assert.equal(authority?.validTo, Date.parse(certificate.validTo));
    assert.equal(authority?.serial, certificate.serialNumber.replace(/^0+/, ''));
  }
});

const ca = await CertificateAuthority.create('kubernetes', DAY);
const trust = new TrustSet(ca.cert);

function accepted(shown: Presented, by = trust, now = Date.now()) {
  return verifyChain(shown, by, now);
}

function refused(shown: Presented, why: RegExp, by: Trust = trust, now = Date.now()): void {
  assert.throws(
    () => verifyChain(shown, by, now),
    (error: Error) => error instanceof CertificateRejected && why.test(error.message),
  );
}

test('a certificate is verified up to an authority of the bundle', async () => {
  const middle = await ca.subordinate('middle', DAY);
  const low = await middle.subordinate('low', DAY / 2);
  assert.equal(accepted(await shownBy(ca, 'a')).authorities.length, 1);
  const chain = accepted(await shownBy(low, 'a', { sent: [middle, low] }));
  assert.equal(chain.authorities.length, 3);
  assert.ok(chain.expires < Date.now() + DAY * 0.6, 'the chain ends with the first of its certificates');
  // The bundle may hold the authority in the middle alone.
  assert.equal(accepted(await shownBy(low, 'a', { sent: [low] }), new TrustSet(middle.cert)).authorities.length, 2);
  refused(await shownBy(low, 'a', { sent: [middle] }), /issued by CN=low, which is not a trusted authority/);
});

test('an authority of the same name with another key is another authority', async () => {
  const namesake = await CertificateAuthority.create('kubernetes', DAY);
  refused(
    await shownBy(namesake, 'a'),
    /not a trusted authority here: there is one of that name, but its key did not sign/,
  );
  refused(await shownBy(namesake, 'a', { sent: [namesake] }), /not a trusted authority/);
  refused(await shownBy(await ca.impostor(), 'a'), /not a trusted authority/);
});

test('what is no authority issues nothing', async () => {
  const { cert } = await ca.issue({ commonName: 'agent', validMs: DAY });
  assert.throws(() => new TrustSet(cert), /certificate 1 in it \(agent\) is of no certificate authority/);
  const own = read((await selfSigned('a', ['client'])).cert);
  refused({ leaf: own, sent: [own] }, /not a trusted authority/);
});

test('a path is no longer than its authorities allow', async () => {
  const middle = await ca.subordinate('middle', DAY, 0);
  const low = await middle.subordinate('low', DAY);
  accepted(await shownBy(middle, 'a', { sent: [middle] }));
  refused(await shownBy(low, 'a', { sent: [low, middle] }), /path length of 0 is exceeded/);
});

test('dates, purposes and clocks', async () => {
  const good = await shownBy(ca, 'a');
  refused(good, /it expired at/, trust, Date.now() + 2 * DAY);
  refused(good, /it is not valid before .*: is the clock right\?/, trust, Date.now() - 3 * 3_600_000);
  refused(await shownBy(ca, 'a', { uses: ['server'] }), /lacks clientAuth/);
  accepted(await shownBy(ca, 'a', { uses: [] }));
  const short = await ca.subordinate('short', 3_600_000);
  const shown = await shownBy(short, 'a', { sent: [short] });
  refused(shown, /CN=short cannot vouch for it: it expired at/, trust, Date.now() + 2 * 3_600_000);
});

test('what a peer sends under the name and key of a trusted authority stands for nothing', async () => {
  const expiring = await CertificateAuthority.create('kubernetes', 1000);
  const later = Date.now() + 60_000;
  const shown = await shownBy(expiring, 'a');
  refused(shown, /expired/, new TrustSet(expiring.cert), later);
  const renewed = { ...shown, sent: [read((await expiring.renewed(DAY)).cert)] };
  refused(renewed, /expired/, new TrustSet(expiring.cert), later);
});

test('all ways to trusted authorities are known, the shortest first, and what they signed', async () => {
  const middle = await ca.subordinate('middle', DAY);
  const shown = await shownBy(middle, 'a', { sent: [middle] });
  const { authorities, signed } = accepted(shown, new TrustSet(ca.cert + middle.cert));
  assert.deepEqual(authorities, [read(middle.cert).authorityId, read(ca.cert).authorityId]);
  assert.deepEqual(
    signed.map(({ serial }) => serial),
    [shown.leaf.serial, read(middle.cert).serial],
  );
});

test('a block of a bundle that cannot be read is skipped and named', () => {
  const broken = ca.cert.replace('MII', 'M!!');
  const bundle = new TrustSet(`${broken}${ca.cert}`);
  assert.equal(bundle.all.length, 1);
  assert.deepEqual(bundle.skipped, ['certificate 1 of 2: its PEM block is damaged, or has no end']);
  assert.throws(() => new TrustSet(broken), /^Error: certificate 1 of 1: its PEM block/);
});
