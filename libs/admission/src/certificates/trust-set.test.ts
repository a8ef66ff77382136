import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { test } from 'node:test';
import { CertificateAuthority } from '@isthmus/certificates';
import { DAY } from '../testing/world.ts';
import { TrustSet } from './trust-set.ts';

test("an authority's end and serial number are read as OpenSSL reads them, also beyond 2049", async () => {
  for (const life of [DAY, 40 * 365 * DAY]) {
    const { cert } = await CertificateAuthority.create('kubernetes', life);
    const certificate = new X509Certificate(cert);
    const [authority] = new TrustSet(cert).all;
    assert.equal(authority?.validTo, Date.parse(certificate.validTo));
    assert.equal(authority?.serial, certificate.serialNumber.replace(/^0+/, ''));
  }
});
