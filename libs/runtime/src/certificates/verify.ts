import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { RUNTIME } from '../defaults.ts';
import { type Certificate, certificateOf, faultOfKey } from './certificate.ts';
import { addressText, constraintFault, isFor } from './names.ts';
import { CertificatePool, type Trust } from './pool.ts';

/** What a certificate identifies its owner as. */
export type CertificateUse = 'client' | 'server';

/** Names and DER of the object identifiers, in hex. */
const PURPOSES = { client: ['clientAuth', '2b06010505070302'], server: ['serverAuth', '2b06010505070301'] } as const;

/** anyExtendedKeyUsage (RFC 5280 section 4.2.1.12). */
const ANY_PURPOSE = '551d2500';

/** What a certificate must be good for. */
export interface Demands {
  readonly use: CertificateUse;
  /** Names of which it must have one (subjectAltName): hosts, addresses or a role. Unset: any will do. */
  readonly names?: readonly string[] | undefined;
  /** In milliseconds since the epoch. */
  readonly now: number;
}

/** A certificate and what its owner sent with it, which says nothing about who issued it. */
export interface Presented {
  readonly leaf: Certificate;
  readonly sent: readonly Certificate[];
}

/** From the last certificate up to one that is trusted. */
export type Chain = readonly [leaf: Certificate, ...issuers: Certificate[]];

/** A certificate that was not accepted. The message says why, as the rest of a sentence. */
export class CertificateRejected extends Error {
  override readonly name = 'CertificateRejected';
}

/** Returns the shortest chain. @throws CertificateRejected if there is none */
export function verify(presented: Presented, trust: Trust, demands: Demands): Chain {
  for (const chain of chainsOf(presented, trust, demands)) return chain;
  throw new CertificateRejected('it has no chain');
}

/**
 * Yields each chain from a certificate to one that is trusted, as Go's `Certificate.Verify` finds them: all of the certificates that are
 * trusted or were sent may be issuers, and where one leads nowhere the next one is tried. What is trusted comes first. Policies are not weighed:
 * an authority that demands one is refused.
 * @throws CertificateRejected if there is none
 */
export function* chainsOf({ leaf, sent }: Presented, trust: Trust, demands: Demands): Generator<Chain> {
  const own =
    faultOfLeaf(leaf, demands) ??
    sent
      .slice(0, RUNTIME.sentCertificates)
      .map(faultOfKey)
      .find((fault) => fault !== undefined);
  if (own !== undefined) throw new CertificateRejected(own);
  const { names } = demands;
  const search = new Search(new CertificatePool(sent.slice(0, RUNTIME.sentCertificates)), trust, demands);
  let found = false;
  for (const chain of trust.has(leaf) ? [[leaf] as const] : search.above([leaf])) {
    const fault = purposeFault(chain, demands.use) ?? policyFault(chain) ?? constraintFault(chain);
    if (fault !== undefined) search.hint(fault);
    else if (names && !names.some((name) => isFor(leaf, name))) throw new CertificateRejected(misnamed(leaf, names));
    else {
      found = true;
      yield chain;
    }
  }
  if (!found) throw new CertificateRejected(search.fault(leaf));
}

/** Why nobody may show a certificate for a use, regardless of its issuer and names. */
export function faultOfLeaf(leaf: Certificate, { use, now }: Demands): string | undefined {
  return faultOfAny(leaf, now) ?? faultOfKey(leaf) ?? purposeFault([leaf], use);
}

/** The purpose that a certificate lacks. Without extended key usage it has every one, as in Go. */
export function missingPurpose({ purposes }: Certificate, use: CertificateUse): string | undefined {
  const [name, id] = PURPOSES[use];
  return purposes.length === 0 || purposes.includes(id) || purposes.includes(ANY_PURPOSE) ? undefined : name;
}

function purposeFault(chain: readonly Certificate[], use: CertificateUse): string | undefined {
  const lacking = chain.find((each) => missingPurpose(each, use));
  if (!lacking) return undefined;
  const [name] = PURPOSES[use];
  const what = `its extended key usage lacks ${name}: issue it with extended key usage ${name}`;
  return lacking === chain[0] ? what : `${lacking.subjectText} cannot vouch for it: ${what}`;
}

function policyFault(chain: Chain): string | undefined {
  const demanding = chain.slice(0, -1).find(({ demandsPolicies }) => demandsPolicies);
  return demanding && `${demanding.subjectText} demands certificate policies, which are not weighed here`;
}

function misnamed({ names }: Certificate, wanted: readonly string[]): string {
  const own = [...(names?.dns ?? []), ...(names?.ips ?? []).map(addressText)];
  return `it does not name ${wanted.join(' or ')} (subjectAltName); its names: ${own.join(', ') || 'none'}`;
}

/** Climbs from certificates to their issuers. */
class Search {
  readonly #sent: CertificatePool;
  readonly #trust: Trust;
  readonly #now: number;
  #signatures = 0;
  #spent = false;
  /** The first reason why an issuer of the right name is none. */
  #hint: string | undefined;

  constructor(sent: CertificatePool, trust: Trust, { now }: Demands) {
    this.#sent = sent;
    this.#trust = trust;
    this.#now = now;
  }

  hint(fault: string): void {
    this.#hint ??= fault;
  }

  fault(leaf: Certificate): string {
    if (this.#spent)
      return `more than ${RUNTIME.chainSignatures} certificates have its issuer's name or one above it: let it name the issuer's key (authorityKeyIdentifier)`;
    return this.#hint ?? `it was issued by ${leaf.issuerText}, which is not a trusted authority here`;
  }

  *above(chain: Chain): Generator<Chain> {
    for (const issuer of this.#trust.issuersOf(chain.at(-1) as Certificate))
      if (this.#isNext(issuer, chain, true)) yield [...chain, issuer];
    for (const issuer of this.#sent.issuersOf(chain.at(-1) as Certificate))
      if (this.#isNext(issuer, chain, false)) yield* this.above([...chain, issuer]);
  }

  #isNext(issuer: Certificate, chain: Chain, trusted: boolean): boolean {
    this.#signatures += priceOf(issuer);
    if (this.#signatures > RUNTIME.chainSignatures) this.#spent = true;
    if (this.#spent || isIn(chain, issuer)) return false;
    const last = chain.at(-1) as Certificate;
    const fault =
      faultOfSigner(issuer) ?? faultOfSignature(last, issuer) ?? this.#faultOfIssuer(issuer, chain, trusted);
    if (fault !== undefined) this.hint(fault);
    return fault === undefined;
  }

  #faultOfIssuer(issuer: Certificate, chain: Chain, trusted: boolean): string | undefined {
    const { pathLength, isAuthority } = issuer;
    const fault =
      faultOfAny(issuer, this.#now) ??
      (!trusted && !isAuthority ? NO_AUTHORITY : undefined) ??
      (isAuthority !== undefined && pathLength !== undefined && chain.length - 1 > pathLength
        ? `its path length of ${pathLength} is exceeded`
        : undefined);
    return fault && vouching(issuer, fault);
  }
}

function isIn(chain: Chain, issuer: Certificate): boolean {
  for (const each of chain) {
    const same = issuer.isSameAs(each);
    if (same !== false) return same === true;
  }
  return false;
}

/** In verifications with RSA of 4,096 bits and the usual exponent. */
function priceOf({ keyKind, bits, exponent }: Certificate): number {
  if (keyKind !== 'rsa') return 1;
  return Math.max(1, Math.ceil((bits / 4096) ** 2 * (exponent > 65_537n ? 3 : 1)));
}

const NO_AUTHORITY = 'it is not a certificate authority (basicConstraints, keyUsage)';

function faultOfSigner(issuer: Certificate): string | undefined {
  const { version, isAuthority, maySign } = issuer;
  const isNone = (version === 3 && isAuthority === undefined) || isAuthority === false || !maySign;
  const fault = isNone
    ? NO_AUTHORITY
    : (faultOfKey(issuer) ?? (issuer.keyKind === 'other' ? 'its key is of a kind that is not supported' : undefined));
  return fault && vouching(issuer, fault);
}

function faultOfSignature(issued: Certificate, issuer: Certificate): string | undefined {
  if (!issued.signature) return vouching(issuer, 'it signed with an algorithm that is not allowed, such as SHA-1');
  if (issued.isSignedBy(issuer)) return undefined;
  const { issuerText } = issued;
  return `it was issued by ${issuerText}, which is not a trusted authority here: there is one of that name, but its key did not sign it`;
}

function vouching(issuer: Certificate, fault: string): string {
  return `${issuer.subjectText} cannot vouch for it: ${fault}`;
}

function faultOfAny({ unknownCritical, validFrom, validTo }: Certificate, now: number): string | undefined {
  if (unknownCritical.length > 0) return `it has a critical extension that is not known here (${unknownCritical[0]})`;
  if (validFrom > now) return `it is not valid before ${new Date(validFrom).toISOString()}: is the clock right?`;
  return validTo < now
    ? `it expired at ${new Date(validTo).toISOString()} by the clock here: renew it, or set the clock`
    : undefined;
}

/** Of connections that are open. Only the first reading gets what a peer sent besides its own. */
const presented = new WeakMap<Socket, Presented>();

/**
 * Reads the certificate that a peer showed, whose key it has proven to hold, and the others that it sent, after the handshake; undefined if
 * it showed none. Deno 2.9 knows only the first certificate behind the peer's own, so there a chain may have one intermediate authority
 * that the bundle lacks.
 * @throws CertificateRejected if one of them is malformed
 */
export function presentedBy(socket: TLSSocket): Presented | undefined {
  const before = presented.get(socket);
  if (before) return before;
  const leaf = socket.getPeerX509Certificate();
  if (!leaf) return undefined;
  const sent: Buffer[] = [];
  // These are the certificates in the order in which they came, not issuers.
  for (let next = leaf.issuerCertificate; next && sent.length < RUNTIME.sentCertificates; next = next.issuerCertificate)
    sent.push(next.raw);
  if (sent.reduce((sum, { length }) => sum + length, leaf.raw.length) > RUNTIME.sentCertificatesBytes)
    throw new CertificateRejected(`it sent more than ${RUNTIME.sentCertificatesBytes / 1024} KiB of certificates`);
  try {
    const shown = { leaf: certificateOf(leaf.raw), sent: sent.map(certificateOf) };
    presented.set(socket, shown);
    return shown;
  } catch (cause) {
    throw new CertificateRejected(`a certificate that was sent is malformed: ${(cause as Error).message}`, { cause });
  }
}
