import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { Report, Result } from '@isthmus/findings';
import { type CertificateUse, missingPurpose } from '@isthmus/runtime';
import { GATEWAY_NAME, HUB_SERVER_NAME, issuerOf, nameOf, printable } from '@isthmus/tunnel';

const RENEW = 'renew the file in place: programs use the new one within 10 s';

const DAY_MS = 86_400_000;

/** With fewer days left, a renewal is overdue: automatic renewal happens with a third of the lifetime left. */
const FEW_DAYS = 14;

/** What a certificate must be valid for. */
export interface Demands {
  /** A `peer` proves by its names whether it is a gateway, a hub, or both. */
  readonly use: 'server' | 'client' | 'peer' | 'authority';
  /** Those that the other side trusts; unset when they are not known here. */
  readonly authorities?: readonly X509Certificate[] | undefined;
  /** Name of the source of the authorities, for people. */
  readonly authoritiesFrom?: string;
  /** Names and addresses at which a server is reached. */
  readonly hosts?: readonly string[];
}

const PEM = /-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g;

/** Returns all certificates of a PEM text, in its order. @throws if one cannot be parsed */
export function certificatesIn(pem: string): X509Certificate[] {
  return [...pem.matchAll(PEM)].map(([text]) => new X509Certificate(text));
}

/** Checks a certificate. Returns one result, which shows the first problem. */
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
      'the file has no certificate',
      'give a PEM file that begins with -----BEGIN CERTIFICATE-----',
    );
  const name = nameOf(leaf);
  const days = Math.floor((Date.parse(leaf.validTo) - now) / DAY_MS);
  const ends = new Date(leaf.validTo).toISOString().slice(0, 10);
  if (Date.parse(leaf.validFrom) > now) {
    return report.fail(
      about,
      `${name} is not valid before ${leaf.validFrom}`,
      "check this machine's clock, then the issuer's",
    );
  }
  if (Date.parse(leaf.validTo) < now) return report.fail(about, `${name} expired on ${ends}`, RENEW);
  const uses = use === 'peer' ? rolesOf(leaf) : [use];
  if (uses.length === 0) {
    const roles = [GATEWAY_NAME, HUB_SERVER_NAME].join(' or ');
    return report.fail(
      about,
      `${name} proves no role: its names (${namesOf(leaf)}) include no ${roles}`,
      `issue one with the DNS name ${roles}, or with both for a proxy-server`,
    );
  }
  const purpose = uses.map((each) => purposeMissing(leaf, each)).find((each) => each !== undefined);
  if (purpose)
    return report.fail(
      about,
      `${name} cannot be used for ${purpose}`,
      `issue one whose extended key usage has ${purpose}`,
    );
  if (authorities && !trusted(leaf, [...chain], authorities)) {
    return report.fail(
      about,
      `${name} was issued by ${issuerOf(leaf)}, which is not in ${authoritiesFrom}`,
      `add that authority to ${authoritiesFrom} (intermediate CAs go into the certificate's own file), or issue a new certificate`,
    );
  }
  const unnamed = hosts.filter((host) => !isFor(leaf, host));
  if (unnamed.length > 0) {
    return report.fail(
      about,
      `${name} is not for ${unnamed.join(', ')}; its names: ${namesOf(leaf)}`,
      'issue one with the names that others use to reach it (subjectAltName)',
    );
  }
  if (days < FEW_DAYS) return report.warn(about, `${name} expires on ${ends}, in ${days} days`, RENEW);
  return report.pass(about, `${name}, valid until ${ends} (${days} days)`);
}

function rolesOf(certificate: X509Certificate): CertificateUse[] {
  return [
    ...(isFor(certificate, GATEWAY_NAME) ? (['client'] as const) : []),
    ...(isFor(certificate, HUB_SERVER_NAME) ? (['server'] as const) : []),
  ];
}

function namesOf({ subjectAltName }: X509Certificate): string {
  return printable(subjectAltName ?? 'none');
}

function purposeMissing(certificate: X509Certificate, use: CertificateUse | 'authority'): string | undefined {
  if (use !== 'authority') return missingPurpose(certificate, use);
  return certificate.ca ? undefined : 'issuing certificates (CA:TRUE)';
}

/** Whether a chain of issuers leads from the certificate to an authority. */
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
