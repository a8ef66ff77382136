import type { Report, Result } from '@isthmus/findings';
import {
  addressText,
  type Certificate,
  type CertificatePool,
  type CertificateUse,
  faultOfLeaf,
  isFor,
  missingPurpose,
  type Presented,
  verify,
} from '@isthmus/runtime';
import { GATEWAY_NAME, HUB_SERVER_NAME, printable } from '@isthmus/tunnel';

const RENEW = 'renew the file in place: programs use the new one within 10 s';

const DAY_MS = 86_400_000;

/** With fewer days left, a renewal is overdue: automatic renewal happens with a third of the lifetime left. */
const FEW_DAYS = 14;

/** What a certificate must be valid for. */
export interface Demands {
  /** A `peer` proves by its names whether it is a gateway, a hub, or both. */
  readonly use: 'server' | 'client' | 'peer' | 'authority';
  /** Those that the other side trusts; unset when they are not known here. */
  readonly authorities?: CertificatePool | undefined;
  /** Name of the source of the authorities, for people. */
  readonly authoritiesFrom?: string;
  /** Names and addresses at which a server is reached. */
  readonly hosts?: readonly string[];
}

/** Checks a certificate. Returns one result, which shows the first problem. */
export function judged(
  report: Report,
  about: string,
  [leaf, ...chain]: readonly Certificate[],
  { use, authorities, authoritiesFrom = 'its authorities', hosts = [] }: Demands,
  now = Date.now(),
): Result {
  if (!leaf)
    return report.fail(
      about,
      'the file has no certificate',
      'give a PEM file that begins with -----BEGIN CERTIFICATE-----',
    );
  const name = printable(leaf.name ?? 'no subject');
  const days = Math.floor((leaf.validTo - now) / DAY_MS);
  const ends = new Date(leaf.validTo).toISOString().slice(0, 10);
  if (leaf.validFrom > now) {
    return report.fail(
      about,
      `${name} is not valid before ${new Date(leaf.validFrom).toISOString()}`,
      "check this machine's clock, then the issuer's",
    );
  }
  if (leaf.validTo < now) return report.fail(about, `${name} expired on ${ends}`, RENEW);
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
  for (const each of use === 'authority' ? [] : (uses as CertificateUse[])) {
    const fault = chainFault({ leaf, sent: chain }, authorities, each, now);
    if (fault === undefined) continue;
    return report.fail(
      about,
      `${name} is refused by the programs that get it: ${printable(fault)}`,
      `add its authority to ${authoritiesFrom} (intermediate CAs go there, or into the certificate's own file), or issue a new certificate`,
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

function rolesOf(certificate: Certificate): CertificateUse[] {
  return [
    ...(isFor(certificate, GATEWAY_NAME) ? (['client'] as const) : []),
    ...(isFor(certificate, HUB_SERVER_NAME) ? (['server'] as const) : []),
  ];
}

function namesOf({ names }: Certificate): string {
  return printable(
    [
      ...(names?.dns ?? []).map((each) => `DNS:${each}`),
      ...(names?.ips ?? []).map((each) => `IP:${addressText(each)}`),
    ].join(', ') || 'none',
  );
}

function purposeMissing(certificate: Certificate, use: CertificateUse | 'authority'): string | undefined {
  if (use !== 'authority') return missingPurpose(certificate, use);
  const { isAuthority = certificate.version < 3, maySign } = certificate;
  return isAuthority && maySign ? undefined : 'issuing certificates (CA:TRUE, keyCertSign)';
}

/** What the programs find, which judge with the same function. */
function chainFault(
  presented: Presented,
  authorities: CertificatePool | undefined,
  use: CertificateUse,
  now: number,
): string | undefined {
  if (!authorities) return faultOfLeaf(presented.leaf, { use, now });
  try {
    verify(presented, authorities, { use, now });
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
