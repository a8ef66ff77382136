import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { Report, Result } from './result.ts';

const RENEW = 'renew it in place: programs use the new one within 10 s';

const DAY_MS = 86_400_000;

/** Below that many days a renewal is overdue: those who renew by themselves do it at a third of the lifetime. */
const FEW_DAYS = 14;

const SERVER_AUTH = '1.3.6.1.5.5.7.3.1';
const CLIENT_AUTH = '1.3.6.1.5.5.7.3.2';

/** What a certificate must be good for. */
export interface Demands {
  readonly use: 'server' | 'client' | 'both' | 'authority';
  /** Those that the other side trusts; unset when they are not known here. */
  readonly authorities?: readonly X509Certificate[] | undefined;
  /** Where the authorities come from, for people. */
  readonly authoritiesFrom?: string;
  /** Names and addresses by which a server is reached. */
  readonly hosts?: readonly string[];
}

const PEM = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** All certificates of a PEM text, in its order. @throws for one that cannot be parsed */
export function certificatesIn(pem: string): X509Certificate[] {
  return [...pem.matchAll(PEM)].map(([text]) => new X509Certificate(text));
}

/** Judges a certificate: what is wrong first, as one result. */
export function judged(
  report: Report,
  about: string,
  [leaf, ...chain]: readonly X509Certificate[],
  { use, authorities, authoritiesFrom = 'its authorities', hosts = [] }: Demands,
  now = Date.now(),
): Result {
  if (!leaf)
    return report.fail(
      about,
      'it holds no certificate',
      'give a PEM file that begins with -----BEGIN CERTIFICATE-----',
    );
  const name = leaf.subject.replaceAll('\n', ',');
  const days = Math.floor((Date.parse(leaf.validTo) - now) / DAY_MS);
  const ends = new Date(leaf.validTo).toISOString().slice(0, 10);
  if (Date.parse(leaf.validFrom) > now) {
    return report.fail(
      about,
      `${name} is not valid before ${leaf.validFrom}`,
      "look at this machine's clock, then at the issuer's",
    );
  }
  if (Date.parse(leaf.validTo) < now) return report.fail(about, `${name} ran out on ${ends}`, RENEW);
  const purpose = purposeMissing(leaf, use);
  if (purpose)
    return report.fail(
      about,
      `${name} is not good for ${purpose}`,
      `issue one whose extended key usage has ${purpose}`,
    );
  if (authorities && !trusted(leaf, [...chain], authorities)) {
    return report.fail(
      about,
      `${name} was issued by ${leaf.issuer.replaceAll('\n', ',')}, which is not in ${authoritiesFrom}`,
      `add that authority to ${authoritiesFrom} (and intermediate ones behind the certificate), or issue the certificate anew`,
    );
  }
  const unnamed = hosts.filter((host) => !isFor(leaf, host));
  if (unnamed.length > 0) {
    const names = leaf.subjectAltName ?? 'none';
    return report.fail(
      about,
      `${name} is not for ${unnamed.join(', ')}; its names: ${names}`,
      'issue one with the names by which it is reached (subjectAltName)',
    );
  }
  if (days < FEW_DAYS) return report.warn(about, `${name} runs out on ${ends}, in ${days} days`, RENEW);
  return report.pass(about, `${name}, good until ${ends} (${days} days)`);
}

function purposeMissing({ keyUsage, ca }: X509Certificate, use: Demands['use']): string | undefined {
  if (use === 'authority') return ca ? undefined : 'issuing others (CA:TRUE)';
  // Extended ones by their OIDs. Deno names the plain ones here: then nothing is known of the extended.
  const purposes = keyUsage?.filter((each) => /^[\d.]+$/.test(each)) ?? [];
  // Without the extension it is good for everything (RFC 5280 section 4.2.1.12).
  if (purposes.length === 0) return undefined;
  if (use !== 'client' && !purposes.includes(SERVER_AUTH)) return 'serverAuth';
  if (use !== 'server' && !purposes.includes(CLIENT_AUTH)) return 'clientAuth';
  return undefined;
}

/** Whether issuers lead from the certificate to an authority. */
function trusted(leaf: X509Certificate, chain: X509Certificate[], authorities: readonly X509Certificate[]): boolean {
  let current = leaf;
  for (let step = 0; step <= chain.length; step++) {
    if (authorities.some((authority) => issued(authority, current))) return true;
    const next = chain.find((each) => each !== current && issued(each, current));
    if (!next) return false;
    current = next;
  }
  return false;
}

function issued(issuer: X509Certificate, certificate: X509Certificate): boolean {
  return certificate.checkIssued(issuer) && certificate.verify(issuer.publicKey);
}

function isFor(certificate: X509Certificate, host: string): boolean {
  return (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)) !== undefined;
}
