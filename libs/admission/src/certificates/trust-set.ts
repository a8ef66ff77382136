import { type AsymmetricKeyDetails, createHash, X509Certificate } from 'node:crypto';
import { type CertificateFields, certificateFields, LruMap } from '@isthmus/runtime';
import { printable } from '@isthmus/tunnel';

/** The most certificates of one CA bundle. */
const MOST_AUTHORITIES = 50;

/** A certificate, and what was read of it. */
export interface Read {
  readonly certificate: X509Certificate;
  readonly fields: CertificateFields;
  readonly keyDetails: AsymmetricKeyDetails;
}

const known = new WeakMap<X509Certificate, Read>();

/** Reads each certificate once: a chain is climbed for all tenants, then for one, and authorities stay parsed. */
export function readCertificate(certificate: X509Certificate): Read {
  const before = known.get(certificate);
  if (before) return before;
  let details: AsymmetricKeyDetails | undefined;
  const read: Read = {
    certificate,
    fields: certificateFields(certificate),
    // Asked for late: OpenSSL may not know the key of a certificate that a peer sent for nothing.
    get keyDetails() {
      details ??= certificate.publicKey.asymmetricKeyDetails ?? {};
      return details;
    },
  };
  known.set(certificate, read);
  return read;
}

const signatures = new WeakMap<X509Certificate, WeakSet<X509Certificate>>();

/** Whether an issuer's key signed a certificate. Each pair that is right is verified once. */
export function isSignedBy(issued: X509Certificate, issuer: X509Certificate): boolean {
  const right = signatures.get(issued);
  if (right?.has(issuer)) return true;
  if (!issued.verify(issuer.publicKey)) return false;
  if (right) right.add(issuer);
  else signatures.set(issued, new WeakSet([issuer]));
  return true;
}

/** A certificate authority: its name and key. A certificate that was renewed with the same key is the same authority. */
export function authorityId({ subject, publicKey }: CertificateFields): string {
  return createHash('sha256').update(subject).update('\0').update(publicKey).digest('base64');
}

/** An authority of a bundle. Kept as text: a thousand tenants' certificates cost OpenSSL a second to parse, and most are not used for long. */
export interface Authority {
  readonly id: string;
  /** For people. */
  readonly name: string;
  readonly base64: string;
  /** In upper-case hex. */
  readonly serial: string;
  /** Milliseconds since the epoch. */
  readonly validTo: number;
  /** Its name's DER, and the name of its key, both in hex. */
  readonly subject: string;
  readonly keyId: string;
}

/** How many authorities' certificates stay parsed, some 8 KB each. To parse one takes OpenSSL half of an agent's admission. */
const MOST_PARSED = 512;

/** Certificates that were parsed: a tenant's agents and callers come again and again. */
const parsed = new LruMap<Authority, X509Certificate>(MOST_PARSED);

/** Parses an authority's certificate; undefined if OpenSSL or Deno cannot. */
export function certificateOf(authority: Authority): X509Certificate | undefined {
  const known = parsed.get(authority);
  if (known) return known;
  try {
    const certificate = new X509Certificate(Buffer.from(authority.base64, 'base64'));
    parsed.set(authority, certificate);
    return certificate;
  } catch {
    return undefined;
  }
}

/** Authorities that a chain may end at. */
export interface Trust {
  has(authority: string): boolean;
  /** Those that may have issued a certificate, by their names and by the names of their keys. Whether one signed it is not known yet. */
  issuersOf(issued: CertificateFields): Iterable<Authority>;
}

/** Whether an authority's key has the name by which a certificate calls its issuer's key. Where one has no name, it may be. */
function mayBeKey(issuerKeyId: string, keyId: string): boolean {
  return issuerKeyId === '' || keyId === '' || issuerKeyId === keyId;
}

/** The certificate authorities of a CA bundle. */
export class TrustSet implements Trust {
  readonly all: readonly Authority[];

  /**
   * @param pem one certificate or more; text between them is skipped
   * @throws Error if there is none, or one that is no authority
   */
  constructor(pem: string) {
    const blocks = [...pem.matchAll(CERTIFICATE)];
    if (blocks.length === 0) throw new Error('there is no certificate (PEM) in it');
    if (blocks.length > MOST_AUTHORITIES)
      throw new Error(`there are ${blocks.length} certificates in it: at most ${MOST_AUTHORITIES} are allowed`);
    this.all = blocks.map(([, base64 = ''], index) => authorityIn(base64, index + 1));
  }

  has(authority: string): boolean {
    return this.all.some(({ id }) => id === authority);
  }

  /** Names are compared byte by byte, as issuers copy them. */
  issuersOf({ issuer, issuerKeyId }: CertificateFields): Authority[] {
    return this.all.filter(({ subject, keyId }) => subject === issuer && mayBeKey(issuerKeyId, keyId));
  }
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/g;

function authorityIn(base64: string, place: number): Authority {
  const raw = Buffer.from(base64, 'base64');
  const fields = certificateFields({ raw });
  const { issues, commonNames, subject, keyId, publicKey, serial, validTo } = fields;
  if (publicKey.length === 0) throw new Error(`certificate ${place} in it is malformed`);
  const name = commonNames[0] || 'without a common name';
  if (!issues)
    throw new Error(`certificate ${place} in it (${name}) is of no certificate authority (basicConstraints, keyUsage)`);
  return { id: authorityId(fields), name: printable(`CN=${name}`), base64, serial, validTo, subject, keyId };
}
