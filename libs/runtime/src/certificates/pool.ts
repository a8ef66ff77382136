import { createHash } from 'node:crypto';
import { getCACertificates } from 'node:tls';
import { LruMap } from '../collections.ts';
import { RUNTIME } from '../defaults.ts';
import { type Certificate, certificateOf } from './certificate.ts';

/** Certificates that a chain may end at. */
export interface Trust {
  has(certificate: Certificate): boolean;
  /** Those that may have issued a certificate, the likeliest first. */
  issuersOf(issued: Certificate): Iterable<Certificate>;
}

const BEGIN = '-----BEGIN CERTIFICATE-----';
const BLOCK = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----/g;

/** A bundle of certificates. Each of them is trusted by itself: an intermediate authority needs nothing above it. */
export class CertificatePool implements Trust {
  readonly all: readonly Certificate[];
  /** Why some blocks of its text are not in it: `certificate 2 of 3 is malformed: ...`. */
  readonly skipped: readonly string[];

  constructor(certificates: readonly Certificate[], skipped: readonly string[] = []) {
    // Each once.
    this.all = [...new Map(certificates.map((one) => [one.raw.toString('latin1'), one])).values()];
    this.skipped = skipped;
  }

  has(certificate: Certificate): boolean {
    return this.all.some(({ raw }) => raw.equals(certificate.raw));
  }

  /** Names decide, byte by byte, as issuers copy them. Among equal ones, keys' names say which is likely, and exclude none (as Go). */
  issuersOf(issued: Certificate): readonly Certificate[] {
    const found = this.all.filter(({ subject }) => subject === issued.issuer);
    if (found.length < 2) return found;
    const rank = ({ keyId }: Certificate) =>
      keyId === issued.issuerKeyId ? 0 : keyId === '' || issued.issuerKeyId === '' ? 1 : 2;
    return found.sort((a, b) => rank(a) - rank(b));
  }

  /** For OpenSSL, which would stop at a block that it cannot read. */
  get pem(): string {
    return this.all.map(({ raw }) => pemOf(raw)).join('');
  }

  /** Of the text of PEM blocks. As Go does, it skips blocks that cannot be read, and all that is no certificate. */
  static of(pem: Buffer | string): CertificatePool {
    const text = pem.toString('latin1');
    const hash = createHash('sha256').update(text).digest('base64');
    const before = pools.get(hash);
    if (before) return before;
    const pool = poolIn(text);
    pools.set(hash, pool);
    return pool;
  }

  /** What this machine trusts, as the runtime knows it (with NODE_EXTRA_CA_CERTS and --use-system-ca). */
  static system(): CertificatePool {
    system ??= CertificatePool.of(getCACertificates('default').join('\n'));
    return system;
  }
}

let system: CertificatePool | undefined;

/** Bundles that were read: those of a program's flags and of what it connects to. Tenants keep their own. */
const pools = new LruMap<string, CertificatePool>(RUNTIME.certificateBundles);

function poolIn(text: string): CertificatePool {
  const certificates: Certificate[] = [];
  const skipped: string[] = [];
  const blocks = new Map([...text.matchAll(BLOCK)].map((match) => [match.index, match[1] ?? '']));
  const places = [...text.matchAll(new RegExp(BEGIN, 'g'))].map(({ index }) => index);
  for (const [number, place] of places.entries()) {
    try {
      const base64 = blocks.get(place)?.replaceAll(/\s/g, '');
      if (base64 === undefined || base64.length % 4 !== 0 || !/^[^=]+={0,2}$/.test(base64))
        throw new Error('its PEM block is damaged');
      certificates.push(certificateOf(bytesOf(base64)));
    } catch (error) {
      skipped.push(`certificate ${number + 1} of ${places.length} is malformed: ${(error as Error).message}`);
    }
  }
  return new CertificatePool(certificates, skipped);
}

/** Not of Node's pool of buffers, 64 KiB of which would live for as long as the certificate. */
function bytesOf(base64: string): Buffer {
  const bytes = Buffer.alloc(Buffer.byteLength(base64, 'base64'));
  bytes.write(base64, 'base64');
  return bytes;
}

function pemOf(raw: Buffer): string {
  const lines = raw.toString('base64').match(/.{1,64}/g) ?? [];
  return `${BEGIN}\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

type Pem = Buffer | string | undefined;

/**
 * Returns what a program sends: its certificate, followed by those of its issuers that are among the authorities. If a file has only the
 * program's own certificate, OpenSSL looks for the issuers at each handshake and verifies every signature that it finds, which is an
 * eighth of the whole handshake. A given chain it sends as it is. The peer gets the same either way.
 */
export function withIssuers({ cert, ca }: { readonly cert?: Pem; readonly ca?: Pem }): Pem {
  const [leaf, ...others] = cert ? CertificatePool.of(cert).all : [];
  if (!cert || !leaf || others.length > 0 || !ca) return cert;
  const issuers = issuersOf(leaf, CertificatePool.of(ca));
  return [cert.toString('latin1'), ...issuers.map(({ raw }) => pemOf(raw))].join('\n');
}

function issuersOf(leaf: Certificate, authorities: CertificatePool): Certificate[] {
  const chain: Certificate[] = [];
  for (let last: Certificate | undefined = leaf; last && !issuedItself(last); last = chain.at(-1)) {
    const issued: Certificate = last;
    // Of one that was renewed with the same key, the latest: OpenSSL itself skips expired ones.
    const latest = [...authorities.issuersOf(issued)].sort((a, b) => b.validTo - a.validTo);
    // Authorities of the same name differ in their keys.
    const issuer = latest.find((one) => !chain.includes(one) && issued.isSignedBy(one));
    if (!issuer) break;
    chain.push(issuer);
  }
  return chain;
}

function issuedItself(certificate: Certificate): boolean {
  return certificate.subject === certificate.issuer && certificate.isSignedBy(certificate);
}
