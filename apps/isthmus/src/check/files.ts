import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type Result, reportOf } from '@isthmus/findings';
import { CertificatePool } from '@isthmus/runtime';
import { messageOf } from '../exit.ts';
import { type Demands, judged } from './certificate.ts';

/** Files by the names of the programs' flags: `peerCert` is `--peer-cert`. */
export type FileOptions = Readonly<Partial<Record<FileFlag, string>>>;

/** A certificate with its key, its purpose, and the flag of the authorities that its other side trusts. */
const PAIRS = [
  { cert: 'serverCert', key: 'serverKey', use: 'server', trust: undefined },
  { cert: 'clusterCert', key: 'clusterKey', use: 'server', trust: 'caCert' },
  { cert: 'peerCert', key: 'peerKey', use: 'peer', trust: 'peerCaCert' },
  { cert: 'agentCert', key: 'agentKey', use: 'client', trust: 'clusterCaCert' },
  { cert: 'redisCert', key: 'redisKey', use: 'client', trust: undefined },
] as const;

const AUTHORITIES = ['serverCaCert', 'clusterCaCert', 'peerCaCert', 'caCert', 'redisCaCert'] as const;

export type FileFlag = (typeof PAIRS)[number]['cert'] | (typeof PAIRS)[number]['key'] | (typeof AUTHORITIES)[number];

/** All file flags, for the command's options. */
export const FILE_FLAGS: readonly FileFlag[] = [...PAIRS.flatMap(({ cert, key }) => [cert, key]), ...AUTHORITIES];

const SIDES: Readonly<Record<string, string>> = {
  server: 'what gateways present to callers',
  cluster: 'what hubs present to agents',
  peer: 'what gateways and hubs present to each other',
  agent: 'what the agent presents to hubs',
  redis: 'what is presented to Redis',
};

const TRUSTED: Readonly<Record<(typeof AUTHORITIES)[number], string>> = {
  serverCaCert: 'authorities of callers',
  clusterCaCert: 'authorities of agents',
  peerCaCert: 'authorities of gateways and hubs',
  caCert: "authorities of the hubs' certificate, as agents have them",
  redisCaCert: 'authorities of Redis',
};

/** Says what a flag's file is, and what is checked of it. */
export function aboutFile(flag: FileFlag): string {
  if (flag in TRUSTED) return `${TRUSTED[flag as keyof typeof TRUSTED]}: valid, and for how long?`;
  const [, side = '', kind] = /^(.*)(Cert|Key)$/.exec(flag) ?? [];
  if (kind === 'Key') return `its key: does it belong to ${flagName(`${side}Cert`)}?`;
  return `${SIDES[side]}: valid, for how long, for its purpose, from an authority that is trusted?`;
}

export function flagName(flag: string): string {
  return `--${flag.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

const report = reportOf('certificates');

/** @param hosts names at which servers are reached, if given */
export function checkFiles(files: FileOptions, hosts: readonly string[]): Result[] {
  const authorities = AUTHORITIES.filter((flag) => files[flag] !== undefined).flatMap((flag) => {
    return checked(flag, files[flag], { use: 'authority' });
  });
  const pairs = PAIRS.flatMap(({ cert, key, use, trust }) => {
    if (files[cert] === undefined && files[key] === undefined) return [];
    const from = trust && files[trust] ? { authorities: readPool(files[trust]), authoritiesFrom: flagName(trust) } : {};
    const names = use === 'server' ? { hosts } : {};
    return [...checked(cert, files[cert], { use, ...from, ...names }), ...checkKey(cert, key, files)];
  });
  return [...authorities, ...pairs];
}

function checked(flag: FileFlag, path: string | undefined, demands: Demands): Result[] {
  const about = `${flagName(flag)} ${path ?? ''}`.trim();
  if (path === undefined)
    return [report.fail(about, 'the key is given without its certificate', `give ${flagName(flag)} too`)];
  try {
    const { all: certificates, skipped } = CertificatePool.of(readFileSync(path));
    // Each authority of a bundle is checked by itself. In other files the first certificate is the one presented.
    const groups =
      demands.use === 'authority' && certificates.length > 0 ? certificates.map((each) => [each]) : [certificates];
    return [
      ...skipped.map((each) =>
        report.warn(about, `${each}: programs skip it`, 'remove or replace this block of the file'),
      ),
      ...groups.map((group) => judged(report, about, group, demands)),
    ];
  } catch (error) {
    return [
      report.fail(about, `cannot be read: ${messageOf(error)}`, 'check its path and permissions; it must be PEM'),
    ];
  }
}

function readPool(path: string): CertificatePool | undefined {
  try {
    return CertificatePool.of(readFileSync(path));
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
    const own = createPrivateKey(readFileSync(files[key]));
    const belongs = leaf === undefined || new X509Certificate(leaf.raw).checkPrivateKey(own);
    if (belongs) return [report.pass(about, `belongs to ${flagName(cert)}`)];
    return [
      report.fail(
        about,
        `is not the key of ${flagName(cert)} ${files[cert]}`,
        'use the key that was made with this certificate',
      ),
    ];
  } catch (error) {
    return [
      report.fail(
        about,
        `cannot be read: ${messageOf(error)}`,
        'check its path and permissions; it must be PEM without a passphrase',
      ),
    ];
  }
}
