import { createHash } from 'node:crypto';
import * as tls from 'node:tls';
import { LruMap } from '../collections.ts';
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
    const { getCACertificates, rootCertificates } = tls as typeof tls & {
      getCACertificates?: (of: string) => string[];
    };
    system ??= CertificatePool.of((getCACertificates?.('default') ?? rootCertificates).join('\n'));
    return system;
  }
}

let system: CertificatePool | undefined;

/** How many bundles stay read: those of a program's flags and of what it connects to. Tenants keep their own. */
const MOST_POOLS = 16;

const pools = new LruMap<string, CertificatePool>(MOST_POOLS);

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
      certificates.push(certificateOf(Buffer.from(base64, 'base64')));
    } catch (error) {
      skipped.push(`certificate ${number + 1} of ${places.length} is malformed: ${(error as Error).message}`);
    }
  }
  return new CertificatePool(certificates, skipped);
}

export function pemOf(raw: Buffer): string {
  const lines = raw.toString('base64').match(/.{1,64}/g) ?? [];
  return `${BEGIN}\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}
