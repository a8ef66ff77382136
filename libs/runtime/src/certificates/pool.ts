import { createHash } from 'node:crypto';
import { getCACertificates } from 'node:tls';
import { LruMap } from '../collections.ts';
import { RUNTIME } from '../defaults.ts';
import { type Certificate, certificateOf, faultOfKey } from './certificate.ts';
import { pemBlocks } from './pem.ts';

/** Certificates that a chain may end at. */
export interface Trust {
  has(certificate: Certificate): boolean;
  /** Those that may have issued a certificate, the likeliest first. */
  issuersOf(issued: Certificate): Iterable<Certificate>;
}

/** A bundle of certificates. Each of them is trusted by itself: an intermediate authority needs nothing above it. */
export class CertificatePool implements Trust {
  readonly all: readonly Certificate[];
  /** Why some blocks of its text are not in it: `certificate 2 of 3: its PEM block is damaged`. */
  readonly skipped: readonly string[];
  /** Those of them that were skipped for their keys. They verify nothing, and a peer that they issued hears why. */
  readonly weak: readonly Certificate[];

  constructor(
    certificates: readonly Certificate[],
    skipped: readonly string[] = [],
    weak: readonly Certificate[] = [],
  ) {
    // Each once.
    this.all = [...new Map(certificates.map((one) => [one.raw.toString('latin1'), one])).values()];
    this.skipped = skipped;
    this.weak = weak;
  }

  has(certificate: Certificate): boolean {
    return this.all.some(({ raw }) => raw.equals(certificate.raw));
  }

  /** Names decide, byte by byte, as issuers copy them. Among equal ones, keys' names say which is likely, and exclude none (as Go). */
  issuersOf(issued: Certificate): readonly Certificate[] {
    const found = [...this.all, ...this.weak].filter(({ subject }) => subject === issued.issuer);
    if (found.length < 2) return found;
    const rank = ({ keyId }: Certificate) =>
      keyId === issued.issuerKeyId ? 0 : keyId === '' || issued.issuerKeyId === '' ? 1 : 2;
    return found.sort((a, b) => rank(a) - rank(b));
  }

  /** For OpenSSL, which would stop at a block that it cannot read, and does not find one behind a byte order mark. */
  get pem(): string {
    return this.all.map(({ raw }) => pemOf(raw)).join('');
  }

  /**
   * Of the text of PEM blocks. As Go does, it skips blocks that are damaged or have no end, and all that is no certificate; and an RSA key that
   * proves nothing here. As client-go does, it takes nothing of a text with a certificate that is malformed.
   * @throws Error that says which one: `certificate 2 of 3 is malformed: ...`
   */
  static of(pem: Buffer | string): CertificatePool {
    const text = pem.toString('latin1');
    const hash = createHash('sha256').update(text).digest('base64');
    const before = pools.get(hash);
    if (before) return before;
    const pool = poolIn(text);
    pools.set(hash, pool);
    return pool;
  }

  /** The authorities of a bundle. @throws Error as `of`, and if there is none that can be used */
  static authorities(pem: Buffer | string): CertificatePool {
    const pool = CertificatePool.of(pem);
    if (pool.all.length > 0) return pool;
    throw new Error(pool.skipped.join('; ') || 'there is no certificate (PEM) in it');
  }

  /** What this machine trusts, as the runtime knows it (with NODE_EXTRA_CA_CERTS and --use-system-ca). */
  static system(): CertificatePool {
    system ??= new CertificatePool(getCACertificates('default').flatMap((pem) => readable(pem)));
    return system;
  }
}

let system: CertificatePool | undefined;

/** Bundles that were read: those of a program's flags and of what it connects to. Tenants keep their own. */
const pools = new LruMap<string, CertificatePool>(RUNTIME.certificateBundles);

function poolIn(text: string): CertificatePool {
  const certificates: Certificate[] = [];
  const [skipped, weak]: [string[], Certificate[]] = [[], []];
  const blocks = pemBlocks(text, 'CERTIFICATE');
  for (const [index, { bytes }] of blocks.entries()) {
    const found = bytes && readOf(bytes, whichOf(index, blocks));
    const fault = found ? faultOfKey(found) : 'its PEM block is damaged, or has no end';
    if (found) (fault === undefined ? certificates : weak).push(found);
    if (fault !== undefined) skipped.push(`${whichOf(index, blocks, found)}: ${fault}`);
  }
  const more = skipped.length - RUNTIME.skippedNamed;
  if (more > 0) skipped.splice(RUNTIME.skippedNamed, more, `${more} more`);
  return new CertificatePool(certificates, skipped, weak);
}

/** For people: `certificate 1 of 2 (CN=a)`. */
function whichOf(index: number, { length }: readonly unknown[], { name }: Partial<Certificate> = {}): string {
  return `certificate ${index + 1} of ${length}${name === undefined ? '' : ` (${name})`}`;
}

function readOf(bytes: Buffer, which: string): Certificate {
  try {
    return certificateOf(bytes);
  } catch (cause) {
    throw new Error(`${which} is malformed: ${(cause as Error).message}`, { cause });
  }
}

/** Of what the machine trusts, one that Go cannot read keeps no other out. */
function readable(pem: string): readonly Certificate[] {
  try {
    return CertificatePool.of(pem).all;
  } catch {
    return [];
  }
}

function pemOf(raw: Buffer): string {
  const lines = raw.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

type Pem = Buffer | string | undefined;

/**
 * Returns what a program sends: its certificate, followed by those of its issuers that are among the authorities. If a file has only the
 * program's own certificate, OpenSSL looks for the issuers at each handshake and verifies every signature that it finds, which is an
 * eighth of the whole handshake. A given chain it sends as it is. The peer gets the same either way.
 * @throws Error if what the file holds is not a chain as a whole
 */
export function withIssuers({ cert, ca }: { readonly cert?: Pem; readonly ca?: Pem }): string | undefined {
  if (!cert) return undefined;
  const own = ownChain(cert);
  const [leaf, ...others] = own.all as [Certificate, ...Certificate[]];
  const issuers = others.length > 0 || !ca ? [] : issuersOf(leaf, CertificatePool.of(ca));
  return [own.pem, ...issuers.map(({ raw }) => pemOf(raw))].join('');
}

/**
 * Reads what a program shows: its certificate, and those that lead from it to an authority. It must be whole.
 * @throws Error that says why it is not
 */
export function ownChain(cert: Buffer | string): CertificatePool {
  const own = CertificatePool.of(cert);
  if (own.skipped[0] !== undefined) throw new Error(own.skipped[0]);
  const [leaf] = own.all;
  if (!leaf) throw new Error('there is no certificate (PEM) in it');
  // Go does not load such a key, and OpenSSL may, but then peers refuse each handshake.
  if (leaf.keyKind === 'other')
    throw new Error(
      `${whichOf(0, own.all, leaf)}: its key is of a kind that TLS does not take here: RSA, ECDSA on P-224 to P-521 and Ed25519 are allowed`,
    );
  return own;
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
