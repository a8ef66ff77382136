import type { X509Certificate } from 'node:crypto';
import { EXTENSION, missingPurpose } from '@isthmus/runtime';
import { issuerOf, nameOf } from '@isthmus/tunnel';
import { authorityId, certificateOf, isSignedBy, type Read, readCertificate, type Trust } from './trust-set.ts';

/** A certificate whose key the peer has proven to hold, and what was sent with it. Who issued it, nobody has verified yet. */
export interface ShownCertificate {
  readonly leaf: X509Certificate;
  /** The other certificates that the peer sent, in its order. */
  readonly sent: readonly X509Certificate[];
}

/** How many of the certificates that a peer sends are looked at, besides its own. Real chains have one or two. */
const MOST_SENT_CERTIFICATES = 8;

/** The most signatures that one chain may cost: 0.1 ms each. */
const MOST_SIGNATURES = 24;

/** The most authorities of an issuer's name that are looked at: clusters' authorities are all called `kubernetes`, and their keys' names tell them apart. */
const MOST_CANDIDATES = 64;

const TOO_MANY = `more than ${MOST_SIGNATURES} authorities have its issuer's name: let it name the issuer's key (authorityKeyIdentifier), or connect with its tenant's server name (SNI)`;

/** A certificate that was verified, with the authorities above it. */
export interface Chain {
  readonly leaf: Read;
  /** Milliseconds since the epoch: when the first of its certificates expires. */
  readonly expires: number;
  /** Authorities from the one that signed it upwards. One of them must be trusted for the chain to stand. */
  readonly authorities: readonly string[];
  /** What a list of revoked certificates could name: by authority, the serial that it signed. */
  readonly signed: readonly Signed[];
}

export interface Signed {
  readonly authority: string;
  readonly serial: string;
}

/** A certificate that was not accepted. The message says why, as the rest of a sentence. */
export class CertificateRejected extends Error {
  override readonly name = 'CertificateRejected';
}

/**
 * Verifies a client's certificate against the authorities of one tenant alone, as RFC 5280 section 6 asks: TLS has verified it against
 * nothing. What no tenant needs and would have to be weighed, such as name constraints, is refused.
 * @throws CertificateRejected
 */
export function verifyChain({ leaf, sent }: ShownCertificate, trust: Trust, now: number): Chain {
  const read = readCertificate(leaf);
  const own = faultOfLeaf(read, now);
  if (own !== undefined) throw new CertificateRejected(own);
  return new Climb(read, sent.slice(0, MOST_SENT_CERTIFICATES).map(readCertificate), trust, now).chain();
}

/** Why no client may show a certificate, regardless of its issuer. */
export function faultOfLeaf(read: Read, now: number): string | undefined {
  const purpose = missingPurpose(read.certificate, 'client');
  if (purpose) return `its extended key usage lacks ${purpose}: issue it with extended key usage ${purpose}`;
  return faultOfAny(read, now);
}

/** Climbs from a certificate to its issuer, and on as far as there are issuers. */
class Climb {
  readonly #steps: Read[];
  readonly #authorities: string[] = [];
  readonly #sent: readonly Read[];
  readonly #trust: Trust;
  readonly #now: number;
  #signatures = 0;
  #candidates = 0;
  /** Why the last issuer that was found is none. */
  #fault = '';

  constructor(leaf: Read, sent: readonly Read[], trust: Trust, now: number) {
    this.#steps = [leaf];
    this.#sent = sent;
    this.#trust = trust;
    this.#now = now;
  }

  chain(): Chain {
    const [leaf] = this.#steps as [Read];
    let trusted = 0;
    for (let last = leaf; !selfSigned(last); ) {
      const issuer = this.#issuerOf(last);
      if (!issuer) break;
      const id = authorityId(issuer.fields);
      this.#steps.push(issuer);
      this.#authorities.push(id);
      if (trusted === 0 && this.#trust.has(id)) trusted = this.#authorities.length;
      last = issuer;
    }
    if (trusted === 0) throw new CertificateRejected(this.#untrusted());
    return {
      leaf,
      expires: Math.min(...this.#steps.slice(0, trusted + 1).map(({ certificate }) => Date.parse(certificate.validTo))),
      authorities: this.#authorities,
      signed: this.#authorities.map((authority, index) => ({
        authority,
        serial: (this.#steps[index] as Read).fields.serial,
      })),
    };
  }

  #untrusted(): string {
    const last = this.#steps.at(-1) as Read;
    return `it was issued by ${issuerOf(last.certificate)}, which is not a trusted authority here${this.#fault && `: ${this.#fault}`}`;
  }

  /** The tenant's authorities come first: the chain then is as short as it can be. */
  #issuerOf(issued: Read): Read | undefined {
    for (const authority of this.#trust.issuersOf(issued.fields)) {
      if (++this.#candidates > MOST_CANDIDATES) throw new CertificateRejected(TOO_MANY);
      const certificate = certificateOf(authority);
      const issuer = certificate && readCertificate(certificate);
      if (issuer && this.#issued(issuer, issued)) return issuer;
    }
    // An authority is trusted as its bundle has it: what a peer sends under its name and key may lack its limits.
    return this.#sent.find((each) => !this.#trust.has(authorityId(each.fields)) && this.#issued(each, issued));
  }

  #issued(issuer: Read, issued: Read): boolean {
    if (this.#steps.some(({ certificate }) => certificate.raw.equals(issuer.certificate.raw))) return false;
    if (!issued.certificate.checkIssued(issuer.certificate)) return false;
    const fault = faultOfSignature(issued) ?? faultOfIssuer(issuer, this.#below(), this.#now);
    if (fault !== undefined) {
      this.#fault = `${nameOf(issuer.certificate)}: ${fault}`;
      return false;
    }
    if (++this.#signatures > MOST_SIGNATURES) throw new CertificateRejected(TOO_MANY);
    return isSignedBy(issued.certificate, issuer.certificate);
  }

  /** The authorities so far, as a path length counts them (RFC 5280 section 4.2.1.9). */
  #below(): number {
    return this.#steps.slice(1).filter((each) => !selfIssued(each)).length;
  }
}

function selfIssued({ fields }: Read): boolean {
  return fields.issuer === fields.subject;
}

/** As far as names tell. */
function selfSigned({ certificate }: Read): boolean {
  return certificate.checkIssued(certificate);
}

function faultOfIssuer(read: Read, below: number, now: number): string | undefined {
  const { issues, pathLength, purposes } = read.fields;
  if (!issues) return 'it is not a certificate authority (basicConstraints, keyUsage)';
  if (pathLength !== undefined && pathLength < below) return `its path length of ${pathLength} is exceeded`;
  if (purposes && missingPurpose(read.certificate, 'client')) return 'its extended key usage lacks clientAuth';
  return faultOfAny(read, now);
}

const { subjectAltName, basicConstraints, keyUsage, extendedKeyUsage, certificatePolicies, nameConstraints } =
  EXTENSION;

/** Extensions that are weighed, or that change nothing here. */
const KNOWN = new Set<string>([basicConstraints, keyUsage, extendedKeyUsage, certificatePolicies, subjectAltName]);

/** Algorithms by their object identifiers' DER: RSA and ECDSA with SHA-256, -384 and -512, RSA-PSS, Ed25519, Ed448. SHA-1 is none of them. */
const SIGNATURES = new Set([
  ...['0b', '0c', '0d', '0a'].map((last) => `2a864886f70d0101${last}`),
  ...['02', '03', '04'].map((last) => `2a8648ce3d0403${last}`),
  '2b6570',
  '2b6571',
]);

/** A trusted authority's own signature does not matter, so an issued certificate's is judged. */
function faultOfSignature({ fields }: Read): string | undefined {
  return SIGNATURES.has(fields.signedWith)
    ? undefined
    : 'it signed with an algorithm that is not allowed, such as SHA-1';
}

/** The shortest RSA key, in bits (RFC 9325 section 4.5). */
const SHORTEST_RSA = 2048;

/** The longest RSA key, in bits, and the largest exponent: peers choose the keys in what they send, and 24 signatures may be verified. */
const LONGEST_RSA = 8192;
const LARGEST_EXPONENT = 2n ** 32n;

function faultOfAny(read: Read, now: number): string | undefined {
  const { certificate, fields } = read;
  const [from, to] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)];
  if (!(from <= now)) return `it is not valid before ${shownTime(from)}: is the clock right?`;
  if (!(now <= to)) return `it expired at ${shownTime(to)}: renew it`;
  const { modulusLength: bits, publicExponent = 0n } = read.keyDetails;
  if (bits !== undefined && (bits < SHORTEST_RSA || bits > LONGEST_RSA))
    return `its RSA key has ${bits} bits: ${SHORTEST_RSA} to ${LONGEST_RSA} are allowed`;
  if (publicExponent > LARGEST_EXPONENT) return 'its RSA key has an exponent of more than 32 bits';
  if (fields.extensions.has(nameConstraints)) return 'it has name constraints, which are not supported for tenants';
  for (const [id, { critical }] of fields.extensions)
    if (critical && !KNOWN.has(id)) return `it has a critical extension that is not known here (${id})`;
  return undefined;
}

function shownTime(ms: number): string {
  return Number.isNaN(ms) ? 'a time that cannot be read' : new Date(ms).toISOString();
}
