import { endText, FINDINGS, type Result, reportOf } from '@isthmus/findings';
import {
  addressText,
  type Certificate,
  CertificatePool,
  type CertificateUse,
  faultOfLeaf,
  isFor,
  isKeyOf,
  missingPurpose,
  ownChain,
  type Presented,
  printable,
  privateKeyIn,
  readNamedFile,
  reasonOf,
  verify,
} from '@isthmus/runtime';
import { GATEWAY_NAME, HUB_SERVER_NAME } from '@isthmus/tunnel';
import { Option } from 'commander';

/** Files by the names of the programs' flags: `peerCert` is `--peer-cert`. */
export type FileOptions = Readonly<Partial<Record<FileFlag, string>>>;

type Side = (typeof SIDES)[number]['side'];

type FileFlag = `${Side}Cert` | `${Side}Key` | (typeof AUTHORITIES)[number]['flag'];

/** Who presents a certificate: how the flags of its files begin, its purpose, and the flag of the authorities that its other side trusts. */
const SIDES = [
  { side: 'server', is: 'what gateways present to callers', use: 'server', trust: undefined },
  { side: 'cluster', is: 'what hubs present to agents', use: 'server', trust: 'caCert' },
  { side: 'peer', is: 'what gateways and hubs present to each other', use: 'peer', trust: 'peerCaCert' },
  { side: 'agent', is: 'what the agent presents to hubs', use: 'client', trust: 'clusterCaCert' },
  { side: 'redis', is: 'what is presented to Redis', use: 'client', trust: undefined },
] as const;

const AUTHORITIES = [
  { flag: 'serverCaCert', is: 'authorities of callers' },
  { flag: 'clusterCaCert', is: 'authorities of agents' },
  { flag: 'peerCaCert', is: 'authorities of gateways and hubs' },
  { flag: 'caCert', is: "authorities of the hubs' certificate, as agents have them" },
  { flag: 'redisCaCert', is: 'authorities of Redis' },
] as const;

/** The command's options for files, with what is checked of each. */
export const FILE_OPTIONS: readonly Option[] = [
  ...SIDES.flatMap(({ side, is }) => [
    fileOption(`${side}Cert`, `${is}: valid, for how long, for its purpose, from an authority that is trusted?`),
    fileOption(`${side}Key`, `its key: does it belong to ${flagName(`${side}Cert`)}?`),
  ]),
  ...AUTHORITIES.map(({ flag, is }) => fileOption(flag, `${is}: valid, and for how long?`)),
];

function fileOption(flag: FileFlag, about: string): Option {
  return new Option(`${flagName(flag)} <file>`, about);
}

function flagName(flag: FileFlag): string {
  return `--${flag.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

const report = reportOf('certificates');

/**
 * @param hosts names at which servers are reached, if given
 * @param now in milliseconds since the epoch; by default, as this machine says it
 */
export function checkFiles(files: FileOptions, hosts: readonly string[], now?: number): Result[] {
  const authorities = AUTHORITIES.flatMap(({ flag }) =>
    files[flag] === undefined ? [] : checked(flag, files[flag], { use: 'authority' }, now),
  );
  const pairs = SIDES.flatMap(({ side, use, trust }) => {
    const [cert, key] = [`${side}Cert`, `${side}Key`] as const;
    if (files[cert] === undefined && files[key] === undefined) return [];
    const from = trust && files[trust] ? { authorities: readPool(files[trust]), authoritiesFrom: flagName(trust) } : {};
    const names = use === 'server' ? { hosts } : {};
    return [...checked(cert, files[cert], { use, ...from, ...names }, now), ...checkKey(cert, key, files)];
  });
  return [...authorities, ...pairs];
}

function checked(flag: FileFlag, path: string | undefined, demands: Demands, now?: number): Result[] {
  const about = `${flagName(flag)} ${path ?? ''}`.trim();
  if (path === undefined)
    return [report.fail(about, 'the key is given without its certificate', `give ${flagName(flag)} too`)];
  try {
    const pem = readNamedFile(path);
    // The first certificate is the one presented, and all must be whole.
    if (demands.use !== 'authority') return [judged(about, ownChain(pem).all as Shown, demands, now)];
    // Each authority of a bundle is checked by itself.
    const { all, skipped } = CertificatePool.authorities(pem);
    return [
      ...skipped.map((each) =>
        report.warn(about, `${each}: programs skip it`, 'remove or replace this block of the file'),
      ),
      ...all.map((each) => judged(about, [each], demands, now)),
    ];
  } catch (error) {
    return [unusable(about, error, 'PEM as a whole, with keys that are allowed')];
  }
}

function unusable(about: string, error: unknown, wanted: string): Result {
  const todo = `check its path and permissions; it must be ${wanted}`;
  return report.fail(about, `cannot be used: ${reasonOf(error)}`, todo);
}

function readPool(path: string): CertificatePool | undefined {
  try {
    return CertificatePool.of(readNamedFile(path));
  } catch {
    // Reported where the file itself is checked.
    return undefined;
  }
}

function checkKey(cert: FileFlag, key: FileFlag, files: FileOptions): Result[] {
  const about = `${flagName(key)} ${files[key] ?? ''}`.trim();
  const [leaf] = files[cert] === undefined ? [] : (readPool(files[cert])?.all ?? []);
  if (files[key] === undefined)
    return [report.fail(about, 'the certificate is given without its key', `give ${flagName(key)} too`)];
  try {
    const own = readNamedFile(files[key]);
    if (leaf ? isKeyOf(own, leaf) : privateKeyIn(own)) return [report.pass(about, `belongs to ${flagName(cert)}`)];
    const todo = 'use the key that was made with this certificate';
    return [report.fail(about, `is not the key of ${flagName(cert)} ${files[cert]}`, todo)];
  } catch (error) {
    return [unusable(about, error, 'PEM without a passphrase')];
  }
}

const RENEW = 'renew the file in place: programs use the new one within 10 s';

const DAY_MS = 86_400_000;

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

/** A certificate, and those that lead from it to an authority. */
type Shown = readonly [Certificate, ...Certificate[]];

/** Checks a certificate. Returns one result, which shows the first problem. */
export function judged(about: string, shown: Shown, demands: Demands, now = Date.now()): Result {
  const [leaf] = shown;
  const name = printable(leaf.name ?? 'no subject');
  const [fault, todo = ''] = faultOf(shown, demands, now) ?? [];
  if (fault !== undefined) return report.fail(about, `${name} ${fault}`, todo);
  const days = Math.floor((leaf.validTo - now) / DAY_MS);
  const ends = dayOf(leaf.validTo);
  if (days < FINDINGS.certificateDays) return report.warn(about, `${name} ${endText(leaf.validTo, now)}`, RENEW);
  return report.pass(about, `${name}, valid until ${ends} (${days} days)`);
}

/** The first problem, and what to do. */
function faultOf(
  [leaf, ...sent]: Shown,
  { use, authorities, authoritiesFrom = 'its authorities', hosts = [] }: Demands,
  now: number,
): readonly [fault: string, todo: string] | undefined {
  if (leaf.validFrom > now) {
    const from = new Date(leaf.validFrom).toISOString();
    return [`is not valid before ${from}`, "check this machine's clock, then the issuer's"];
  }
  if (leaf.validTo < now) return [`expired on ${dayOf(leaf.validTo)}`, RENEW];
  const uses = use === 'peer' ? rolesOf(leaf) : [use];
  if (uses.length === 0) {
    const roles = [GATEWAY_NAME, HUB_SERVER_NAME].join(' or ');
    const todo = `issue one with the DNS name ${roles}, or with both for a proxy-server`;
    return [`proves no role: its names (${namesOf(leaf)}) include no ${roles}`, todo];
  }
  const purpose = uses.map((each) => purposeMissing(leaf, each)).find((each) => each !== undefined);
  if (purpose) return [`cannot be used for ${purpose}`, `issue one whose extended key usage has ${purpose}`];
  for (const each of use === 'authority' ? [] : (uses as CertificateUse[])) {
    const fault = chainFault({ leaf, sent }, authorities, each, now);
    if (fault === undefined) continue;
    const todo = `add its authority to ${authoritiesFrom} (intermediate CAs go there, or into the certificate's own file), or issue a new certificate`;
    return [`is refused by the programs that get it: ${printable(fault)}`, todo];
  }
  const unnamed = hosts.filter((host) => !isFor(leaf, host));
  if (unnamed.length === 0) return undefined;
  const todo = 'issue one with the names that others use to reach it (subjectAltName)';
  return [`is not for ${unnamed.join(', ')}; its names: ${namesOf(leaf)}`, todo];
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
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
